"""What the functions are told when they run on a laptop: production's settings, with local addresses in them.

Whatever is configured with real credentials (Gemini, OpenAI, COS), in the `.env` file or the environment, is
used for real, and its fake is not started. Everything here is a pure function of its arguments.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

PROJECT = "lookbook-local"
LOCATION = "asia-east1"
SERVICE_ACCOUNT = f"tasks@{PROJECT}.iam.gserviceaccount.com"
AUDIENCE = "https://lookbook.local"
BUCKET = "lookbook-1250000000"
REGION = "ap-guangzhou"
COS_SECRET_ID = "AKIDlocal"  # noqa: S105
COS_SECRET_KEY = "only-for-the-embedded-cloud"  # noqa: S105
OPENAI_KEY = "local-openai-key"
WECHAT_APPID = "wx0000000000000000"
WECHAT_SECRET = "only-for-the-embedded-cloud"  # noqa: S105
WECHAT_ENV = "lookbook-local"
CALLBACK_SECRET = "whsec_" + base64.b64encode(b"only for the embedded cloud!").decode()

QUEUE_FIGURES = Path(__file__).resolve().parent.parent / "infra" / "queues.json"
SWEEP_QUEUE = "sweep"
"""Stands in for Cloud Scheduler, which the embedded cloud does not have."""

RealService = Literal["gemini", "openai", "cos"]

CREDENTIALS: Mapping[RealService, tuple[str, ...]] = {
    "gemini": ("GEMINI_API_KEYS",),
    "openai": ("OPENAI_API_KEY",),
    "cos": ("TENCENT_SECRET_ID", "TENCENT_SECRET_KEY", "TENCENT_COS_BUCKET"),
}
"""What must be given for a service to be used for real."""

SETTINGS = frozenset(
    {
        "AUTH_MODE",
        "CALLBACK_HOSTS",
        "CALLBACK_SECRET",
        "CALLBACK_TIMEOUT_SECONDS",
        "CLOUD_FUNCTION_CALLBACK_URL",
        "CLOUD_TASKS_EMULATOR_HOST",
        "COMPLETE_QUEUE",
        "COMPLETE_URL",
        "COS_DOMAIN",
        "COS_SCHEME",
        "EVENTS_QUEUE",
        "FIRESTORE_EMULATOR_HOST",
        "GEMINI_API_KEYS",
        "GEMINI_MODEL",
        "GEMINI_TIMEOUT_SECONDS",
        "GENERATE_QUEUE",
        "GENERATE_BULK_QUEUE",
        "GENERATE_URL",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GEMINI_BASE_URL",
        "KEEP_FINISHED_DAYS",
        "LEASE_SECONDS",
        "LOG_LEVEL",
        "MAX_BODY_BYTES",
        "OIDC_JWKS_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "OPENAI_TIMEOUT_SECONDS",
        "PATIENCE",
        "PICTURE_FORMAT",
        "PICTURE_MAX_EDGE",
        "PICTURE_QUALITY",
        "PICTURE_URL_DAYS",
        "PRIVATE_HOSTS",
        "RELAY_SECRET",
        "SESSION_MINUTES",
        "SESSION_SECRET",
        "SLOT_WAIT_SECONDS",
        "SOURCE_HOSTS",
        "TASKS_AUDIENCE",
        "TASKS_SERVICE_ACCOUNT",
        "TASK_DEADLINE_SECONDS",
        "TENCENT_COS_BUCKET",
        "TENCENT_COS_REGION",
        "TENCENT_SECRET_ID",
        "TENCENT_SECRET_KEY",
        "UPLOAD_SECONDS",
        "USER_OPEN_TASKS",
        "USER_PICTURES_PER_DAY",
        "MAX_EVENT_STREAMS",
        "WECHAT_APPID",
        "WECHAT_BASE_URL",
        "WECHAT_ENV",
        "WECHAT_SECRET",
    }
)
"""Every setting of the functions: those in the environment of the shell count as given."""

_NOT_INHERITED = SETTINGS | {
    "FUNCTION_TARGET",
    "FUNCTION_SOURCE",
    "PORT",
    "HOST",
    "WORKERS",
    "DEBUG",
    "K_SERVICE",
}


class MalformedEnvFile(Exception):
    """A line of the `.env` file that is not NAME=value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One API key of the pool, as `GEMINI_API_KEYS` writes it."""

    id: str
    secret: str = field(repr=False)
    weight: int = 10
    max_concurrent: int = 3
    quota_domain: str

    def as_setting(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "key": self.secret,
            "weight": self.weight,
            "maxConcurrent": self.max_concurrent,
            "quotaDomain": self.quota_domain,
        }


def local_key(number: int, *, weight: int = 10, max_concurrent: int = 3) -> Key:
    return Key(
        id=f"key{number}",
        secret=f"local-gemini-key-{number}",
        weight=weight,
        max_concurrent=max_concurrent,
        quota_domain=f"project{number}",
    )


SEED_KEYS = (local_key(1), local_key(2), local_key(3), local_key(4, weight=8, max_concurrent=2))
"""The pool of the seed: three keys, and a smaller one to spare."""


def equal_keys(number: int, slots: int) -> tuple[Key, ...]:
    return tuple(local_key(n, max_concurrent=slots) for n in range(1, number + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How one Cloud Tasks queue is made."""

    name: str
    max_concurrent_dispatches: int
    max_dispatches_per_second: float = 500
    min_backoff_seconds: float = 1
    max_backoff_seconds: float = 30
    max_doublings: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where everything listens. A service that is used for real has none here."""

    firestore: str
    """host:port"""
    tasks: str
    """host:port"""
    jwks_url: str
    entry: str
    generate: str
    complete: str
    wechat: str
    receiver: str
    callback_url: str
    sample: str
    """The id of the sample photo in the mini-program's cloud storage."""
    gemini: str | None = None
    openai: str | None = None
    cos: str | None = None


def read_env_file(text: str) -> dict[str, str]:
    """NAME=value lines, `#` comments; quotes round a value are taken off, an empty one counts as absent."""
    found: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.replace("_", "").isalnum():
            raise MalformedEnvFile(
                f".env 第 {number} 行应为 NAME=value · line {number} of .env is not NAME=value"
            )
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        if value:
            found[name] = value
    return found


def given_settings(env_file: Mapping[str, str], shell: Mapping[str, str]) -> dict[str, str]:
    """What the person set: the shell's word counts before the file's, as everywhere."""
    return {**env_file, **{name: shell[name] for name in SETTINGS if shell.get(name)}}


def real_services(given: Mapping[str, str]) -> frozenset[RealService]:
    return frozenset(
        service for service, names in CREDENTIALS.items() if all(given.get(name) for name in names)
    )


def slots_of(keys_setting: str) -> int:
    """How many pictures `GEMINI_API_KEYS` can draw at once; the functions refuse a malformed one."""
    try:
        return sum(int(key["maxConcurrent"]) for key in json.loads(keys_setting))
    except (ValueError, TypeError, KeyError):
        return 1


def local_queues(slots: int) -> tuple[Queue, ...]:
    """The queues that Terraform makes, from the same figures, for a pool of so many slots."""
    figures = json.loads(QUEUE_FIGURES.read_text("utf-8"))["queues"]
    return (
        *(
            Queue(
                name=name,
                max_concurrent_dispatches=math.ceil(slots * queue["max_concurrent"]["per_slot"])
                + queue["max_concurrent"]["plus"],
                max_dispatches_per_second=queue["max_per_second"],
                min_backoff_seconds=queue["retry"]["min_backoff_seconds"],
                max_backoff_seconds=queue["retry"]["max_backoff_seconds"],
                max_doublings=queue["retry"]["max_doublings"],
            )
            for name, queue in figures.items()
        ),
        Queue(name=SWEEP_QUEUE, max_concurrent_dispatches=1),
    )


def host_and_port(url: str) -> str:
    return urlsplit(url).netloc


def settings_for(
    addresses: Addresses, *, keys: Sequence[Key], given: Mapping[str, str], extra: Mapping[str, str]
) -> dict[str, str]:
    """Local defaults, over them what was given, over that where things really listen, over that `extra`."""
    real = real_services(given)
    fakes = (addresses.gemini, addresses.openai, addresses.cos, addresses.wechat, addresses.receiver)
    settings = {
        "AUTH_MODE": "none",
        "CALLBACK_SECRET": CALLBACK_SECRET,
        "CLOUD_FUNCTION_CALLBACK_URL": addresses.callback_url,
        "RELAY_SECRET": "only-for-the-embedded-cloud-relay-secret",
        "SESSION_SECRET": "only-for-the-embedded-cloud-session-secret",
        "WECHAT_APPID": WECHAT_APPID,
        "WECHAT_SECRET": WECHAT_SECRET,
        "WECHAT_ENV": WECHAT_ENV,
        "WECHAT_BASE_URL": addresses.wechat,
        "TENCENT_COS_REGION": REGION,
        "USER_OPEN_TASKS": "0",
        "USER_PICTURES_PER_DAY": "0",
        **given,
        "GOOGLE_CLOUD_PROJECT": PROJECT,
        "GOOGLE_CLOUD_LOCATION": LOCATION,
        "FIRESTORE_EMULATOR_HOST": addresses.firestore,
        "CLOUD_TASKS_EMULATOR_HOST": addresses.tasks,
        "GENERATE_QUEUE": "generate",
        "GENERATE_BULK_QUEUE": "generate-bulk",
        "COMPLETE_QUEUE": "complete",
        "EVENTS_QUEUE": "events",
        "GENERATE_URL": addresses.generate,
        "COMPLETE_URL": addresses.complete,
        "TASKS_SERVICE_ACCOUNT": SERVICE_ACCOUNT,
        "TASKS_AUDIENCE": AUDIENCE,
        "OIDC_JWKS_URL": addresses.jwks_url,
        "PRIVATE_HOSTS": ",".join(host_and_port(url) for url in fakes if url),
    }
    if "gemini" not in real and addresses.gemini:
        settings["GEMINI_API_KEYS"] = json.dumps([key.as_setting() for key in keys])
        settings["GOOGLE_GEMINI_BASE_URL"] = addresses.gemini
    if "openai" not in real and addresses.openai:
        settings["OPENAI_API_KEY"] = OPENAI_KEY
        settings["OPENAI_BASE_URL"] = f"{addresses.openai}/v1"
    if "cos" not in real and addresses.cos:
        settings["TENCENT_SECRET_ID"] = COS_SECRET_ID
        settings["TENCENT_SECRET_KEY"] = COS_SECRET_KEY
        settings["TENCENT_COS_BUCKET"] = BUCKET
        settings["COS_DOMAIN"] = f"{host_and_port(addresses.cos)}/{BUCKET}"
        settings["COS_SCHEME"] = "http"
    return {**settings, **extra}


def process_environment(
    settings: Mapping[str, str], shell: Mapping[str, str], more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a function: the shell's without stray settings; loopback never through a proxy."""
    inherited = {name: value for name, value in shell.items() if name not in _NOT_INHERITED}
    return {**inherited, **without_proxy(shell), **settings, **(more or {})}


def without_proxy(shell: Mapping[str, str]) -> dict[str, str]:
    excepted = [part for part in (shell.get("no_proxy") or shell.get("NO_PROXY") or "").split(",") if part]
    joined = ",".join(_unique([*excepted, "127.0.0.1", "localhost"]))
    return {"no_proxy": joined, "NO_PROXY": joined}


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
