"""What each function is told by its environment, checked once at the start.

Every function has its own class, so that it asks for, and can be given, only the secrets it needs.
`load` stops with one line that names the first setting that is missing or malformed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from shared.adapters.webhook import parse_secret
from shared.task import Patience


class BadSetting(Exception):
    """A setting is missing or malformed; the message is one line that names it."""


def _split(value: Any) -> Any:
    return (
        frozenset(part.strip().lower() for part in value.split(",") if part.strip())
        if isinstance(value, str)
        else value
    )


def _url(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("is not an http(s) URL")
    return value


def _host_and_port(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9._-]+:\d{1,5}", value):
        raise ValueError("is not host:port")
    return value


Url = Annotated[str, AfterValidator(_url)]
HostAndPort = Annotated[str, AfterValidator(_host_and_port)]
HostList = Annotated[frozenset[str], BeforeValidator(_split)]
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ApiKey(BaseModel):
    """One entry of GEMINI_API_KEYS."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    id: str
    key: SecretStr = Field(min_length=1)
    weight: int = Field(default=10, ge=1, le=1000)
    max_concurrent: int = Field(default=3, ge=1, le=100, alias="maxConcurrent")
    quota_domain: str = Field(default="", alias="quotaDomain", max_length=100)

    @field_validator("id")
    @classmethod
    def _plain_id(cls, value: str) -> str:
        if not _KEY_ID.fullmatch(value):
            raise ValueError("an id is 1 to 64 letters, digits, - or _")
        return value

    @field_validator("quota_domain")
    @classmethod
    def _plain_domain(cls, value: str) -> str:
        if value and not _KEY_ID.fullmatch(value):
            raise ValueError("a quotaDomain is 1 to 64 letters, digits, - or _")
        return value

    @property
    def domain(self) -> str:
        """Without a stated domain a key is taken to have a Google project of its own."""
        return self.quota_domain or self.id


def _parse_keys(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError("is not JSON") from error


def _unique_ids(keys: list[ApiKey]) -> list[ApiKey]:
    if len({key.id for key in keys}) != len(keys):
        raise ValueError("two keys have the same id")
    if not keys:
        raise ValueError("the list is empty")
    return keys


ApiKeys = Annotated[list[ApiKey], BeforeValidator(_parse_keys), AfterValidator(_unique_ids)]


def slots_of(keys: Sequence[ApiKey]) -> int:
    """How many pictures a pool can draw at once."""
    return sum(key.max_concurrent for key in keys)


class Settings(BaseModel):
    """What every function needs: where Firestore and Cloud Tasks are, and who may call."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    project: str = Field(alias="GOOGLE_CLOUD_PROJECT", min_length=1)
    location: str = Field(default="asia-east1", alias="GOOGLE_CLOUD_LOCATION", min_length=1)
    firestore_emulator: HostAndPort = Field(default="", alias="FIRESTORE_EMULATOR_HOST")
    tasks_emulator: HostAndPort = Field(default="", alias="CLOUD_TASKS_EMULATOR_HOST")
    generate_url: Url = Field(alias="GENERATE_URL", min_length=1)
    complete_url: Url = Field(alias="COMPLETE_URL", min_length=1)
    generate_queue: str = Field(default="generate", alias="GENERATE_QUEUE")
    bulk_queue: str = Field(default="generate-bulk", alias="GENERATE_BULK_QUEUE")
    complete_queue: str = Field(default="complete", alias="COMPLETE_QUEUE")
    events_queue: str = Field(default="events", alias="EVENTS_QUEUE")
    tasks_service_account: str = Field(alias="TASKS_SERVICE_ACCOUNT", min_length=3)
    tasks_audience: str = Field(alias="TASKS_AUDIENCE", min_length=1)
    jwks_url: Url = Field(default="https://www.googleapis.com/oauth2/v3/certs", alias="OIDC_JWKS_URL")
    deployed: str = Field(default="", alias="K_SERVICE")
    private_hosts: HostList = Field(default=frozenset(), alias="PRIVATE_HOSTS")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", alias="LOG_LEVEL")
    task_deadline_seconds: int = Field(default=1800, ge=10, le=86_400, alias="TASK_DEADLINE_SECONDS")
    finished_days: int = Field(default=30, ge=1, le=3650, alias="KEEP_FINISHED_DAYS")
    patience_factor: float = Field(default=1, gt=0, le=10, alias="PATIENCE")
    """Scales the waits after which something is taken to be lost; rehearsals of disasters can't take hours."""

    @model_validator(mode="after")
    def _local_only(self) -> Self:
        if self.deployed:
            for name, value in (
                ("FIRESTORE_EMULATOR_HOST", self.firestore_emulator),
                ("CLOUD_TASKS_EMULATOR_HOST", self.tasks_emulator),
                ("PRIVATE_HOSTS", self.private_hosts),
            ):
                if value:
                    raise ValueError(f"{name} is for local use and refused when K_SERVICE is set")
            if self.jwks_url != "https://www.googleapis.com/oauth2/v3/certs":
                raise ValueError("OIDC_JWKS_URL is for local use and refused when K_SERVICE is set")
            if self.patience_factor != 1:
                raise ValueError("PATIENCE is for local use and refused when K_SERVICE is set")
        return self

    @property
    def task_deadline(self) -> timedelta:
        return timedelta(seconds=self.task_deadline_seconds)

    @property
    def patience(self) -> Patience:
        return Patience(keep=timedelta(days=self.finished_days)).scaled(self.patience_factor)


class CosSettings(BaseModel):
    """Where pictures are kept."""

    cos_secret_id: SecretStr = Field(alias="TENCENT_SECRET_ID", min_length=1)
    cos_secret_key: SecretStr = Field(alias="TENCENT_SECRET_KEY", min_length=1)
    cos_bucket: str = Field(alias="TENCENT_COS_BUCKET", min_length=3)
    cos_region: str = Field(default="ap-guangzhou", alias="TENCENT_COS_REGION", min_length=3)
    cos_domain: str = Field(default="", alias="COS_DOMAIN")
    cos_scheme: Literal["https", "http"] = Field(default="https", alias="COS_SCHEME")
    url_days: int = Field(default=7, ge=1, le=365, alias="PICTURE_URL_DAYS")

    @property
    def url_lifetime(self) -> timedelta:
        return timedelta(days=self.url_days)


class WeChatSettings(BaseModel):
    """The mini-program: its login, and its cloud storage."""

    wechat_appid: str = Field(default="", alias="WECHAT_APPID")
    wechat_secret: SecretStr = Field(default=SecretStr(""), alias="WECHAT_SECRET")
    wechat_env: str = Field(default="", alias="WECHAT_ENV")
    wechat_base_url: Url = Field(default="https://api.weixin.qq.com", alias="WECHAT_BASE_URL")


class EntrySettings(Settings, WeChatSettings):
    auth_mode: Literal["wechat", "relay", "none"] = Field(alias="AUTH_MODE")
    session_secret: SecretStr = Field(default=SecretStr(""), alias="SESSION_SECRET")
    relay_secret: SecretStr = Field(default=SecretStr(""), alias="RELAY_SECRET")
    session_minutes: int = Field(default=120, ge=5, le=43_200, alias="SESSION_MINUTES")
    callback_url: Url = Field(default="", alias="CLOUD_FUNCTION_CALLBACK_URL")
    callback_hosts: HostList = Field(default=frozenset(), alias="CALLBACK_HOSTS")
    source_hosts: HostList = Field(default=frozenset(), alias="SOURCE_HOSTS")
    gemini_model: str = Field(default="gemini-2.5-flash-image", alias="GEMINI_MODEL", min_length=1)
    user_open_tasks: int = Field(default=20, ge=0, le=10_000, alias="USER_OPEN_TASKS")
    user_pictures_per_day: int = Field(default=1000, ge=0, le=1_000_000, alias="USER_PICTURES_PER_DAY")
    most_streams: int = Field(default=200, ge=1, le=10_000, alias="MAX_EVENT_STREAMS")
    max_body_bytes: int = Field(default=262_144, ge=1024, le=8_388_608, alias="MAX_BODY_BYTES")

    @model_validator(mode="after")
    def _secrets_for_mode(self) -> Self:
        if self.auth_mode == "none" and self.deployed:
            raise ValueError("AUTH_MODE=none is for local use and refused when K_SERVICE is set")
        if self.auth_mode == "wechat":
            for name, value in (
                ("WECHAT_APPID", self.wechat_appid),
                ("WECHAT_SECRET", self.wechat_secret.get_secret_value()),
            ):
                if not value:
                    raise ValueError(f"{name} is missing (AUTH_MODE=wechat needs it)")
            if len(self.session_secret.get_secret_value()) < 32:
                raise ValueError(
                    "SESSION_SECRET must have at least 32 characters (AUTH_MODE=wechat needs it)"
                )
        if self.auth_mode == "relay" and len(self.relay_secret.get_secret_value()) < 32:
            raise ValueError("RELAY_SECRET must have at least 32 characters (AUTH_MODE=relay needs it)")
        return self


class GenerateSettings(Settings, CosSettings, WeChatSettings):
    api_keys: ApiKeys = Field(alias="GEMINI_API_KEYS")
    gemini_model: str = Field(default="gemini-2.5-flash-image", alias="GEMINI_MODEL", min_length=1)
    gemini_base_url: Url = Field(default="", alias="GOOGLE_GEMINI_BASE_URL")
    gemini_timeout_seconds: float = Field(default=120, gt=0, le=900, alias="GEMINI_TIMEOUT_SECONDS")
    lease_seconds: float = Field(default=150, gt=0, le=1200, alias="LEASE_SECONDS")
    slot_wait_seconds: float = Field(default=20, ge=0, le=300, alias="SLOT_WAIT_SECONDS")
    upload_seconds: float = Field(default=60, gt=0, le=600, alias="UPLOAD_SECONDS")
    openai_api_key: SecretStr = Field(default=SecretStr(""), alias="OPENAI_API_KEY")
    openai_base_url: Url = Field(default="", alias="OPENAI_BASE_URL")
    openai_model: str = Field(default="gpt-4o-mini", alias="OPENAI_MODEL", min_length=1)
    openai_timeout_seconds: float = Field(default=15, gt=0, le=60, alias="OPENAI_TIMEOUT_SECONDS")
    source_hosts: HostList = Field(default=frozenset(), alias="SOURCE_HOSTS")
    picture_format: Literal["webp", "jpeg"] = Field(default="webp", alias="PICTURE_FORMAT")
    picture_quality: int = Field(default=88, ge=1, le=100, alias="PICTURE_QUALITY")
    picture_max_edge: int = Field(default=2048, ge=256, le=8192, alias="PICTURE_MAX_EDGE")

    @model_validator(mode="after")
    def _lease_outlives_call(self) -> Self:
        if self.lease_seconds <= self.gemini_timeout_seconds:
            raise ValueError("LEASE_SECONDS must be longer than GEMINI_TIMEOUT_SECONDS")
        return self


class CompleteSettings(Settings):
    callback_url: Url = Field(default="", alias="CLOUD_FUNCTION_CALLBACK_URL")
    callback_secret: SecretStr = Field(alias="CALLBACK_SECRET")
    callback_timeout_seconds: float = Field(default=10, gt=0, le=60, alias="CALLBACK_TIMEOUT_SECONDS")

    @field_validator("callback_secret")
    @classmethod
    def _whsec(cls, value: SecretStr) -> SecretStr:
        parse_secret(value.get_secret_value())
        return value


class AdminSettings(BaseModel):
    """What `python -m shared.admin` needs: Firestore, and the keys for `keys sync`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    project: str = Field(alias="GOOGLE_CLOUD_PROJECT", min_length=1)
    gemini_model: str = Field(default="gemini-2.5-flash-image", alias="GEMINI_MODEL", min_length=1)
    api_keys: ApiKeys = Field(default_factory=list, alias="GEMINI_API_KEYS")


S = TypeVar("S", bound=BaseModel)


def load(kind: type[S], environment: Mapping[str, str]) -> S:
    """An empty variable counts as one that isn't set: that is how deployments spell "none"."""
    try:
        return kind.model_validate({name: value for name, value in environment.items() if value != ""})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        reason = "is missing" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
        raise BadSetting(f"{name}: {reason}" if name else reason) from None


FOR_TARGET: dict[str, type[Settings]] = {
    "entry": EntrySettings,
    "generate": GenerateSettings,
    "complete": CompleteSettings,
}
