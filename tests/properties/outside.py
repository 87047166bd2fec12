"""The outside of a world, scripted: the painter and its quota, the picture store, the source host, the receiver.

Each keeps its own books; the invariants are checked against these, not against what the flow says of itself.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from PIL import Image

from shared.adapters.cos import NoSuchObject
from shared.errors import (
    ContentPolicyViolation,
    InsufficientQuota,
    InternalError,
    InvalidApiKey,
    InvalidPrompt,
    LookbookError,
    NoImageReturned,
    RateLimitExceeded,
    ServiceUnavailable,
    TimedOut,
    UnknownError,
)
from shared.flow.complete import Delivered, News, NotDelivered
from tests.properties.virtual_clock import VirtualClock

CALL_TIME: Final = timedelta(seconds=120)
OUTCOMES: Final[dict[str, Callable[[], LookbookError] | None]] = {
    "picture": None,
    "limited": RateLimitExceeded,
    "limited_briefly": lambda: RateLimitExceeded(retry_after=timedelta(seconds=20)),
    "limited_today": lambda: RateLimitExceeded(per_day=True),
    "unavailable": ServiceUnavailable,
    "internal": InternalError,
    "no_image": NoImageReturned,
    "unknown": UnknownError,
    "bad_key": InvalidApiKey,
    "no_quota": InsufficientQuota,
    "policy": ContentPolicyViolation,
    "bad_prompt": InvalidPrompt,
    "hang": TimedOut,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How the painter answers one call."""

    outcome: str = "picture"
    seconds: int = 5


@dataclass(slots=True, kw_only=True)
class Job:
    """One handler at work: what was done to it from outside."""

    process: Any
    task_id: str = ""
    index: int = -1
    delayed: timedelta = timedelta(0)
    """How long its own calls took in all."""
    harmed: bool = False
    """A call of its own was answered with a failure that nobody repeats for it."""


JOB: ContextVar[Job | None] = ContextVar("job", default=None)
CALL: ContextVar[Call | None] = ContextVar("call", default=None)


@dataclass(slots=True, kw_only=True)
class Call:
    """One call as the provider saw it."""

    key_id: str
    model: str
    job: Job
    begun: datetime
    ends: datetime
    """Until then it counts against the key, whoever still waits for it."""
    outcome: str
    paid: bool = False
    cos_key: str | None = None


@cache
def photo() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 16), (180, 40, 40)).save(out, "JPEG")
    return out.getvalue()


class Painter:
    """Secrets are the ids of the keys, so that a call tells whose it was."""

    def __init__(
        self,
        clock: VirtualClock,
        answers: Sequence[Answer],
        *,
        provider_busy: timedelta,
        begun: Callable[[Call], None],
    ) -> None:
        self._clock = clock
        self._answers = deque(answers)
        self._busy = provider_busy
        self._begun = begun
        self.calls: list[Call] = []

    async def draw(self, *, api_key: str, model: str, within: timedelta, **_: Any) -> bytes:
        answer = self._answers.popleft() if self._answers else Answer()
        job = JOB.get()
        assert job is not None
        now = self._clock.now()
        hangs = answer.outcome == "hang"
        busy = self._busy if hangs else timedelta(seconds=answer.seconds)
        call = Call(key_id=api_key, model=model, job=job, begun=now, ends=now + busy, outcome=answer.outcome)
        CALL.set(call)
        self.calls.append(call)
        self._begun(call)
        await self._clock.sleep(within.total_seconds() if hangs else answer.seconds)
        error = OUTCOMES[answer.outcome]
        if error is not None:
            raise error()
        call.paid = True
        return photo()

    def in_flight(self, *, since: datetime | None = None) -> list[Call]:
        now = self._clock.now()
        return [call for call in self.calls if call.ends > now and (since is None or call.begun > since)]


class Store:
    def __init__(self) -> None:
        self.failures = 0
        """How many of the next calls fail in a way that is tried again at once."""
        self.refusals = 0
        """How many of the next pictures are not taken at all."""
        self._objects: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        if key.startswith("pictures/"):
            call = CALL.get()
            if call is not None:
                call.cos_key = key
            if self.refusals:
                self.refusals -= 1
                raise LookbookError("the picture store says no")
        self._fail_if_told()
        self._objects[key] = data

    async def get(self, key: str) -> bytes:
        self._fail_if_told()
        try:
            return self._objects[key]
        except KeyError:
            raise NoSuchObject(key) from None

    def url(self, key: str, expires: timedelta) -> str:
        return f"https://pictures.example/{key}"

    def _fail_if_told(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ServiceUnavailable("the picture store is away")


class Fetcher:
    async def fetch(self, url: str) -> bytes:
        return photo()


@dataclass(slots=True)
class Receiver:
    """A subscriber that refuses when it is told to."""

    refusals: int = 0
    got: list[str] = field(default_factory=list)

    async def __call__(self, news: News) -> Delivered:
        if self.refusals:
            self.refusals -= 1
            raise NotDelivered("not now")
        self.got.append(news.event.event_id)
        return Delivered()
