"""The painter: one call to a Gemini image model, and what its every way of answering means to us.

google-genai raises on HTTP errors but not on refusals, so there are two kinds of tables: `STATUS` and
`REASON` for what came back as an error, `FINISH` and `BLOCKED` for a 200 without a picture. The SDK's own
exceptions never leave this module: their text holds the whole error body, and some bodies hold the key.
The module is long because the tables are in it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import httpx2

from shared.errors import (
    ContentPolicyViolation,
    InsufficientQuota,
    InternalError,
    InvalidApiKey,
    InvalidImageFormat,
    InvalidPrompt,
    LookbookError,
    NoImageReturned,
    RateLimitExceeded,
    ServiceUnavailable,
    TimedOut,
    Transient,
    UnknownError,
)
from shared.images import SourcePhoto
from shared.payload import ApiPayload, read_payload

if TYPE_CHECKING:
    from google.genai import types

ErrorType = type[LookbookError]

STATUS: Final[Mapping[int, tuple[ErrorType, str]]] = {
    400: (InvalidPrompt, "The model refused the request as invalid."),
    401: (InvalidApiKey, "The API key was refused."),
    402: (InsufficientQuota, "The key's account has no credit left."),
    403: (InvalidApiKey, "The API key may not use this model."),
    404: (InvalidPrompt, "The model does not exist or cannot make pictures."),
    408: (TimedOut, "The model gave up waiting for the request."),
    413: (InvalidImageFormat, "The source photos are too large for the model."),
    415: (InvalidImageFormat, "The model does not read this kind of photo."),
    429: (RateLimitExceeded, "The key's quota is used up for the moment."),
    499: (TimedOut, "The call was cut short."),
    500: (InternalError, "The model failed inside."),
    502: (ServiceUnavailable, "The model's gateway is not working."),
    503: (ServiceUnavailable, "The model is overloaded."),
    504: (TimedOut, "The model did not finish in time."),
}

REASON: Final[Mapping[str, tuple[ErrorType, str]]] = {
    # ErrorInfo.reason goes before the status: a bad key comes as a 400 like any bad argument.
    "API_KEY_INVALID": (InvalidApiKey, "The API key is not valid."),
    "API_KEY_EXPIRED": (InvalidApiKey, "The API key has expired."),
    "API_KEY_SERVICE_BLOCKED": (InvalidApiKey, "The API key may not call this service."),
    "API_KEY_HTTP_REFERRER_BLOCKED": (InvalidApiKey, "The API key may not be used from here."),
    "API_KEY_IP_ADDRESS_BLOCKED": (InvalidApiKey, "The API key may not be used from here."),
    "CONSUMER_INVALID": (InvalidApiKey, "The key's project does not exist."),
    "CONSUMER_SUSPENDED": (InvalidApiKey, "The key's project is suspended."),
    "SERVICE_DISABLED": (InvalidApiKey, "The key's project has the service switched off."),
    "BILLING_DISABLED": (InsufficientQuota, "The key's project has no billing account."),
}

_POLICY: Final[tuple[ErrorType, str]] = (
    ContentPolicyViolation,
    "The picture was refused by the model's content policy.",
)
_EMPTY: Final[tuple[ErrorType, str]] = (NoImageReturned, "The model answered without a picture.")

FINISH: Final[Mapping[str, tuple[ErrorType, str]]] = {
    "SAFETY": _POLICY,
    "BLOCKLIST": _POLICY,
    "PROHIBITED_CONTENT": _POLICY,
    "SPII": _POLICY,
    "RECITATION": _POLICY,
    "IMAGE_SAFETY": _POLICY,
    "IMAGE_PROHIBITED_CONTENT": _POLICY,
    "IMAGE_RECITATION": _POLICY,
    "MODEL_ARMOR": _POLICY,
    "LANGUAGE": (InvalidPrompt, "The model does not support the language of the prompt."),
    "STOP": _EMPTY,
    "MAX_TOKENS": _EMPTY,
    "OTHER": _EMPTY,
    "IMAGE_OTHER": _EMPTY,
    "NO_IMAGE": _EMPTY,
    "FINISH_REASON_UNSPECIFIED": _EMPTY,
    "MALFORMED_FUNCTION_CALL": _EMPTY,
    "MALFORMED_RESPONSE": _EMPTY,
    "UNEXPECTED_TOOL_CALL": _EMPTY,
    "TOO_MANY_TOOL_CALLS": _EMPTY,
    "MISSING_THOUGHT_SIGNATURE": _EMPTY,
    "ESCALATION": _EMPTY,
    "PUP_LIMITED_DISABLED": _EMPTY,
    "CONTINUATION": _EMPTY,
}

BLOCKED: Final[Mapping[str, tuple[ErrorType, str]]] = {
    "SAFETY": _POLICY,
    "OTHER": _POLICY,
    "BLOCKLIST": _POLICY,
    "PROHIBITED_CONTENT": _POLICY,
    "IMAGE_SAFETY": _POLICY,
    "MODEL_ARMOR": _POLICY,
    "JAILBREAK": _POLICY,
    "BLOCKED_REASON_UNSPECIFIED": _EMPTY,
}

SAFETY: Final[Mapping[str, str]] = {
    # The seed's `block_some`, in Gemini's words.
    "HARM_CATEGORY_HARASSMENT": "BLOCK_MEDIUM_AND_ABOVE",
    "HARM_CATEGORY_HATE_SPEECH": "BLOCK_MEDIUM_AND_ABOVE",
    "HARM_CATEGORY_SEXUALLY_EXPLICIT": "BLOCK_MEDIUM_AND_ABOVE",
    "HARM_CATEGORY_DANGEROUS_CONTENT": "BLOCK_MEDIUM_AND_ABOVE",
}

GUIDANCE: Final = (
    "Show the garment of the attached photos unchanged in colour, cut and pattern. "
    "Every person shown is an adult."
)
"""The seed's `personGeneration: allow_adult`, which as a parameter needs the enterprise platform."""


class GeminiPainter:
    """One client for all keys: the leased key goes into the header of each request."""

    def __init__(
        self, *, base_url: str | None, timeout: timedelta, http: httpx2.AsyncClient | None = None
    ) -> None:
        from google import genai
        from google.genai import types

        self._timeout = timeout
        self._owns_http = http is None
        # With a client handed in, the SDK stays on httpx2 even where aiohttp is installed.
        self._http = http or httpx2.AsyncClient(
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100), timeout=None
        )
        self._client = genai.Client(
            api_key="given-per-request",
            enterprise=False,
            http_options=types.HttpOptions(
                base_url=base_url,
                timeout=int(timeout.total_seconds() * 1000),
                httpx_async_client=self._http,
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        )

    async def draw(
        self,
        *,
        api_key: str,
        model: str,
        prompt: str,
        sources: Sequence[SourcePhoto],
        aspect_ratio: str | None,
        payload: Mapping[str, Any],
        within: timedelta | None = None,
    ) -> bytes:
        """The picture as the model sent it, not yet decoded. `within`: less time than calls have anyway."""
        from google.genai import types

        config = self._config(read_payload(payload), api_key, aspect_ratio)
        photos = [types.Part.from_bytes(data=photo.data, mime_type=photo.mimeType) for photo in sources]
        timeout = min(within or self._timeout, self._timeout)
        answer = await self._call(model, [prompt, *([GUIDANCE, *photos] if photos else [])], config, timeout)
        return _picture_in(answer)

    async def close(self) -> None:
        if self._owns_http:
            await self._http.aclose()

    async def _call(
        self, model: str, contents: Any, config: types.GenerateContentConfig, timeout: timedelta
    ) -> types.GenerateContentResponse:
        from google.genai import errors

        failure: LookbookError
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await self._client.aio.models.generate_content(
                    model=model, contents=contents, config=config
                )
        except errors.APIError as error:
            failure = classify_error(error.code, error.details, _retry_after_header(error.response))
        except (TimeoutError, httpx2.ReadTimeout, httpx2.WriteTimeout):
            failure = TimedOut("The model did not answer in time.")
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            failure = ServiceUnavailable("The model could not be reached.")
        except httpx2.HTTPError:
            failure = InternalError("The connection to the model broke.")
        except (ValueError, TypeError, AttributeError, KeyError):
            # The SDK's own parsing of an answer that is not what it expects: JSON, base64 and schema errors.
            failure = UnknownError("The model's answer could not be understood.")
        raise failure

    def _config(
        self, chosen: ApiPayload, api_key: str, aspect_ratio: str | None
    ) -> types.GenerateContentConfig:
        from google.genai import types

        safety = dict(SAFETY) | {one.category: one.threshold for one in chosen.safety_settings or []}
        return types.GenerateContentConfig(
            response_modalities=["IMAGE"],
            candidate_count=1,
            temperature=chosen.temperature,
            top_p=chosen.top_p,
            top_k=chosen.top_k,
            seed=chosen.seed,
            max_output_tokens=chosen.max_output_tokens,
            presence_penalty=chosen.presence_penalty,
            frequency_penalty=chosen.frequency_penalty,
            system_instruction=chosen.system_instruction,
            safety_settings=[
                types.SafetySetting(
                    category=types.HarmCategory(category), threshold=types.HarmBlockThreshold(threshold)
                )
                for category, threshold in safety.items()
            ],
            image_config=types.ImageConfig(aspect_ratio=aspect_ratio, image_size=chosen.image_size),
            # Lower case: with any other spelling httpx2 sends both this key and the client's.
            http_options=types.HttpOptions(headers={"x-goog-api-key": api_key}),
        )


def classify_error(status: int, body: Any, retry_after: timedelta | None = None) -> LookbookError:
    """What an HTTP error of the Gemini API means, from its status and its JSON body (any shape)."""
    details = _details(body)
    for reason in (detail.get("reason") for detail in details):
        if isinstance(reason, str) and reason in REASON:
            kind, message = REASON[reason]
            return kind(message)
    retry_after = _retry_delay(details) or retry_after
    if status == 429:
        return _classify_quota(details, retry_after)
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    if status == 400 and error.get("status") == "FAILED_PRECONDITION":
        return InsufficientQuota("The key's project must have billing enabled to make pictures.")
    if status == 400 and "input image" in str(error.get("message")).lower():
        return InvalidImageFormat("The model could not read a source photo.")
    default = (InternalError, "The model failed inside.") if status >= 500 else (UnknownError, "")
    kind, message = STATUS.get(status, default)
    message = message or f"The model answered {status}."
    return kind(message, retry_after=retry_after) if issubclass(kind, Transient) else kind(message)


def classify_answer(block_reason: str | None, finish_reason: str | None) -> LookbookError:
    """What a 200 without a picture means."""
    kind, message = _EMPTY
    if block_reason:
        kind, message = BLOCKED.get(block_reason, _POLICY)
    elif finish_reason:
        kind, message = FINISH.get(finish_reason, _EMPTY)
    reason = block_reason or finish_reason
    return kind(f"{message[:-1]} ({reason}).") if reason else kind(message)


def _picture_in(answer: types.GenerateContentResponse) -> bytes:
    blocked = answer.prompt_feedback.block_reason if answer.prompt_feedback else None
    candidate = answer.candidates[0] if answer.candidates else None
    finish = candidate.finish_reason if candidate else None
    refused = FINISH.get(finish.value, _EMPTY)[0] is not NoImageReturned if finish else False
    if blocked is None and not refused and candidate and candidate.content:
        for part in reversed(candidate.content.parts or []):
            # A thinking model sends its sketches too; the picture is the last that is not a thought.
            blob = part.inline_data
            if not part.thought and blob and blob.data and (blob.mime_type or "").startswith("image/"):
                return blob.data
    raise classify_answer(blocked.value if blocked else None, finish.value if finish else None)


def _classify_quota(details: list[dict[str, Any]], retry_after: timedelta | None) -> LookbookError:
    violations = [
        violation
        for detail in details
        if isinstance(detail.get("violations"), list)
        for violation in detail["violations"]
        if isinstance(violation, dict)
    ]
    if any(str(violation.get("quotaValue")) == "0" for violation in violations):
        return InsufficientQuota("The key's plan has no quota for this model.")
    per_day = any("perday" in str(violation.get("quotaId", "")).lower() for violation in violations)
    return RateLimitExceeded(
        "The key's quota for today is used up." if per_day else STATUS[429][1],
        retry_after=retry_after,
        per_day=per_day,
    )


def _details(body: Any) -> list[dict[str, Any]]:
    error = body.get("error") if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    return [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []


def _retry_delay(details: list[dict[str, Any]]) -> timedelta | None:
    for detail in details:
        found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,9})?)s", str(detail.get("retryDelay", "")))
        if found:
            return timedelta(seconds=float(found.group(1)))
    return None


def _retry_after_header(response: Any) -> timedelta | None:
    value = str(response.headers.get("retry-after", "")) if isinstance(response, httpx2.Response) else ""
    return timedelta(seconds=int(value)) if re.fullmatch(r"\d{1,6}", value) else None
