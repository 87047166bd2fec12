"""The director of poses: one chat completion, soon or not at all; a task never waits long for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import httpx2

from shared.errors import (
    ContentPolicyViolation,
    InsufficientQuota,
    InternalError,
    InvalidApiKey,
    InvalidPrompt,
    LookbookError,
    RateLimitExceeded,
    ServiceUnavailable,
    TimedOut,
    UnknownError,
)

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

_STATUS: Final[dict[int, tuple[type[LookbookError], str]]] = {
    400: (InvalidPrompt, "The pose director refused the request as invalid."),
    401: (InvalidApiKey, "The pose director's key was refused."),
    403: (InvalidApiKey, "The pose director's key may not use this model."),
    404: (InvalidPrompt, "The pose director's model does not exist."),
    408: (TimedOut, "The pose director gave up waiting."),
    422: (InvalidPrompt, "The pose director refused the request as invalid."),
    502: (ServiceUnavailable, "The pose director's gateway is not working."),
    503: (ServiceUnavailable, "The pose director is overloaded."),
    504: (TimedOut, "The pose director did not finish in time."),
}
_TOKENS_PER_POSE: Final = 60
_MOST_TOKENS: Final = 8192


class PoseDirector:
    def __init__(
        self,
        *,
        api_key: str,
        base_url: str | None = None,
        model: str = "gpt-4o-mini",
        timeout: timedelta = timedelta(seconds=15),
    ) -> None:
        from openai import AsyncOpenAI

        self._model = model
        self._timeout = timeout
        self._client = AsyncOpenAI(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            timeout=httpx2.Timeout(timeout.total_seconds(), connect=3.0),
        )

    async def direct(self, messages: Sequence[dict[str, str]], count: int) -> str:
        """The raw text of the answer; `read_actions` makes sense of it."""
        import openai

        failure: LookbookError
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                answer = await self._client.chat.completions.create(
                    model=self._model,
                    messages=cast("list[ChatCompletionMessageParam]", list(messages)),
                    temperature=0.8,
                    response_format={"type": "json_object"},
                    max_completion_tokens=min(_MOST_TOKENS, 200 + _TOKENS_PER_POSE * count),
                )
            return _text_of(answer)
        except (TimeoutError, openai.APITimeoutError):
            failure = TimedOut("The pose director did not answer in time.")
        except openai.APIStatusError as error:
            failure = classify_error(error.status_code, error.code, error.response.headers.get("retry-after"))
        except openai.APIConnectionError:
            failure = ServiceUnavailable("The pose director could not be reached.")
        except (openai.OpenAIError, httpx2.HTTPError, ValueError):
            failure = UnknownError("The pose director's answer could not be understood.")
        raise failure

    async def close(self) -> None:
        await self._client.close()


def classify_error(status: int, code: str | None, retry_after: str | None) -> LookbookError:
    if code == "insufficient_quota" or status == 402:
        return InsufficientQuota("The pose director's account has no credit left.")
    if code in ("content_policy_violation", "content_filter"):
        return ContentPolicyViolation("The pose director refused the request by its content policy.")
    if status == 429:
        seconds = re.fullmatch(r"\d{1,6}", retry_after or "")
        wait = timedelta(seconds=int(seconds.group())) if seconds else None
        return RateLimitExceeded("The pose director's quota is used up for the moment.", retry_after=wait)
    if status in _STATUS:
        kind, message = _STATUS[status]
        return kind(message)
    if status >= 500:
        return InternalError("The pose director failed inside.")
    return UnknownError(f"The pose director answered {status}.")


def _text_of(answer: ChatCompletion | Any) -> str:
    # The SDK hands on whatever JSON or text came with a 200, without checking it.
    choices = getattr(answer, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    if message is not None and getattr(message, "refusal", None):
        raise ContentPolicyViolation("The pose director refused the request by its content policy.")
    content = getattr(message, "content", None)
    if not isinstance(content, str) or not content.strip():
        raise UnknownError("The pose director answered without a text.")
    return content
