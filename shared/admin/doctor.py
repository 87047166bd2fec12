"""`doctor`: looks at a deployment from outside in, and says of each part whether it is right.

It is run with the settings of all three functions. What it leaves behind: one small object in COS, the same each time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx2
from google.api_core import exceptions as gexc
from google.cloud import tasks_v2

from shared.adapters import firestore_keys, firestore_tasks, webhook
from shared.adapters.cloud_tasks import Bell, Wake
from shared.adapters.cos import CosStore
from shared.adapters.firestore import Documents
from shared.admin.report import Refused, print_table
from shared.clock import Clock
from shared.settings import CompleteSettings, EntrySettings, GenerateSettings, slots_of

_FIGURES: Final = Path(__file__).resolve().parents[2] / "infra" / "queues.json"
_NOBODY: Final = "task_doctor"
_COS_KEY: Final = "doctor/probe.txt"
_TOKEN_SECONDS: Final = 30
_GEMINI: Final = "https://generativelanguage.googleapis.com"


class Wrong(Exception):
    """A part of the deployment is not as it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    what: str
    is_right: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    entry: EntrySettings
    generate: GenerateSettings
    complete: CompleteSettings
    entry_url: str
    documents: Documents
    bell: Bell
    store: CosStore
    http: httpx2.AsyncClient
    clock: Clock

    async def __call__(self, _: argparse.Namespace) -> None:
        """Check a deployment: settings, Firestore, queues, functions, COS, keys, callback."""
        lines = [line async for line in self._examine()]
        print_table(
            [
                ("", "PART", "DETAIL"),
                *(("ok" if line.is_right else "WRONG", line.what, line.detail) for line in lines),
            ]
        )
        wrong = sum(not line.is_right for line in lines)
        if wrong:
            raise Refused(f"{wrong} of {len(lines)} parts are not right")

    async def _examine(self) -> AsyncIterator[Line]:
        # Nobody could have called this with settings that don't load.
        yield Line(what="settings", is_right=True, detail="all three functions load theirs")
        parts: list[tuple[str, Callable[[], Awaitable[str]]]] = [
            ("firestore", self._firestore),
            ("queries and indexes", self._queries),
            *((f"queue {name}", _about(self._queue, name)) for name in self._figures()),
            ("entry", self._entry),
            *(
                (f"{name} without a token", _about(self._refuses, url))
                for name, url in (
                    ("generate", self.generate.generate_url),
                    ("complete", self.generate.complete_url),
                    ("sweep", f"{self.generate.complete_url}/sweep"),
                )
            ),
            ("generate with a token", _about(self._accepts, self._harmless("generate"))),
            ("complete with a token", _about(self._accepts, self._harmless("complete"))),
            ("cos", self._cos),
            *((f"key {key.id}", _about(self._key, key.id)) for key in self.generate.api_keys),
            ("key pool", self._pool),
            ("callback", self._callback),
            ("callback, forged", self._forged_callback),
        ]
        for what, check in parts:
            yield await _line(what, check)

    def _figures(self) -> Mapping[str, Any]:
        queues: dict[str, Any] = json.loads(_FIGURES.read_text("utf-8"))["queues"]
        return queues

    async def _firestore(self) -> str:
        await self.documents.get("health/probe")
        return f"project {self.generate.project} answers"

    async def _queries(self) -> str:
        """A query whose index is missing or still being built is refused by Firestore."""
        now = self.clock.now()
        asked: list[Awaitable[Any]] = [
            firestore_tasks.tasks_of_user(self.documents, "doctor", size=1, after=now),
            firestore_tasks.events_of(self.documents, _NOBODY, since=now, most=1),
            firestore_tasks.failed_shots(self.documents, most=1),
            firestore_tasks.undelivered_events(self.documents, "notification", most=1),
            firestore_tasks.tally(self.documents, _NOBODY),
            firestore_keys.slots_with_dead_holders(self.documents, before=now, most=1),
            *(
                firestore_tasks.overdue(self.documents, kind, field, before=now, most=1)
                for kind, field in (("shots", "enqueueAt"), ("events", "publishBy"), ("tasks", "checkAt"))
            ),
        ]
        await asyncio.gather(*asked)
        return f"{len(asked)} queries answered"

    async def _queue(self, name: str) -> str:
        figures = self._figures()[name]
        path = self.bell.client.queue_path(self.bell.project, self.bell.location, name)
        queue = await self.bell.client.get_queue(name=path, timeout=10)
        if queue.state != tasks_v2.Queue.State.RUNNING:
            raise Wrong(f"is {tasks_v2.Queue.State(queue.state).name}")
        slots = slots_of(self.generate.api_keys)
        wanted = {
            "max_concurrent_dispatches": math.ceil(slots * figures["max_concurrent"]["per_slot"])
            + figures["max_concurrent"]["plus"],
            "max_dispatches_per_second": figures["max_per_second"],
            "max_attempts": figures["retry"]["max_attempts"],
            "max_doublings": figures["retry"]["max_doublings"],
        }
        found = {
            "max_concurrent_dispatches": queue.rate_limits.max_concurrent_dispatches,
            "max_dispatches_per_second": queue.rate_limits.max_dispatches_per_second,
            "max_attempts": queue.retry_config.max_attempts,
            "max_doublings": queue.retry_config.max_doublings,
        }
        other = [
            f"{key} is {found[key]}, not {value}" for key, value in wanted.items() if found[key] != value
        ]
        if other:
            raise Wrong("; ".join(other))
        return f"running, {found['max_concurrent_dispatches']} at a time for {slots} slots"

    async def _entry(self) -> str:
        if not self.entry_url:
            raise Wrong("give its address with --entry")
        for path in ("/health", "/ready"):
            answer = await self.http.get(f"{self.entry_url}{path}")
            if answer.status_code != 200:
                raise Wrong(f"{path} answers {answer.status_code}")
        if self.entry.auth_mode == "none":
            return "answers; AUTH_MODE=none lets everybody in"
        answer = await self.http.get(f"{self.entry_url}/tasks")
        if answer.status_code != 401:
            raise Wrong(f"a request without a login is answered with {answer.status_code}")
        return f"answers, and refuses a request without a login ({self.entry.auth_mode})"

    async def _refuses(self, url: str) -> str:
        answer = await self.http.post(url, json={"taskId": _NOBODY})
        if answer.status_code not in (401, 403, 404):
            raise Wrong(f"a call without a token is answered with {answer.status_code}")
        return f"refused with {answer.status_code}"

    def _harmless(self, function: str) -> Wake:
        """A wake-up for a task that does not exist."""
        round_ = uuid.uuid4().int
        if function == "complete":
            return self.bell.settle(_NOBODY, trace_id=uuid.uuid4().hex, round_=round_)
        return self.bell.shot(_NOBODY, 0, version="none", waits=round_, trace_id=uuid.uuid4().hex)

    async def _accepts(self, wake: Wake) -> str:
        """Cloud Tasks itself calls the function with its token; the task is gone once it was answered with 2xx."""
        await self.bell.ring([wake])
        parent = self.bell.client.queue_path(self.bell.project, self.bell.location, wake.queue)
        for _ in range(_TOKEN_SECONDS):
            await self.clock.sleep(1)
            try:
                task = await self.bell.client.get_task(name=f"{parent}/tasks/{wake.name}", timeout=10)
            except gexc.NotFound:
                return "accepted from Cloud Tasks"
            if task.response_count:
                status = task.last_attempt.response_status
                raise Wrong(f"a call of Cloud Tasks was answered with: {status.message or status.code}")
        raise Wrong(f"Cloud Tasks has not called it within {_TOKEN_SECONDS} s")

    async def _cos(self) -> str:
        content = uuid.uuid4().hex.encode()
        await self.store.put(_COS_KEY, content, "text/plain")
        if await self.store.get(_COS_KEY) != content:
            raise Wrong("what was written does not come back")
        answer = await self.http.get(self.store.url(_COS_KEY, timedelta(minutes=5)))
        if answer.status_code != 200 or answer.content != content:
            raise Wrong(f"the signed address answers {answer.status_code}")
        return f"written, read, and fetched through a signed address ({self.generate.cos_bucket})"

    async def _key(self, key_id: str) -> str:
        """Asking what the model is costs nothing."""
        secret = next(key.key for key in self.generate.api_keys if key.id == key_id)
        base = self.generate.gemini_base_url or _GEMINI
        answer = await self.http.get(
            f"{base}/v1beta/models/{self.generate.gemini_model}",
            headers={"x-goog-api-key": secret.get_secret_value()},
        )
        if answer.status_code != 200:
            raise Wrong(f"is refused with {answer.status_code}")
        return f"may use {self.generate.gemini_model}"

    async def _pool(self) -> str:
        pool = await firestore_keys.read_pool(self.documents)
        wanted = {key.id: key.max_concurrent for key in self.generate.api_keys}
        known = {key.key_id: key.max_concurrent for key in pool.keys.values()}
        if any(known.get(key_id) != slots for key_id, slots in wanted.items()):
            raise Wrong("differs from GEMINI_API_KEYS: run `python -m shared.admin keys sync`")
        disabled = [key.key_id for key in pool.keys.values() if not key.enabled and key.key_id in wanted]
        if len(disabled) == len(wanted):
            raise Wrong("every key is disabled")
        return f"{len(wanted)} keys" + (f", disabled: {', '.join(disabled)}" if disabled else "")

    async def _callback(self) -> str:
        secret = webhook.parse_secret(self.complete.callback_secret.get_secret_value())
        status = await self._ping(secret)
        if not 200 <= status < 300:
            raise Wrong(f"a signed ping is answered with {status}")
        return f"a signed ping is accepted ({status})"

    async def _forged_callback(self) -> str:
        status = await self._ping(b"a secret that is not the right one")
        if 200 <= status < 300:
            raise Wrong(f"a ping with a wrong signature is answered with {status}")
        return f"a wrong signature is refused ({status})"

    async def _ping(self, secret: bytes) -> int:
        if not self.complete.callback_url:
            raise Wrong("CLOUD_FUNCTION_CALLBACK_URL is not set")
        now = self.clock.now()
        event_id = str(uuid.uuid4())
        body = json.dumps({"eventId": event_id, "eventType": "ping", "payload": {}}).encode()
        headers = webhook.headers(secret, event_id, int(now.timestamp()), body)
        answer = await self.http.post(self.complete.callback_url, content=body, headers=headers)
        return answer.status_code


def _about(check: Callable[[Any], Awaitable[str]], what: Any) -> Callable[[], Awaitable[str]]:
    return lambda: check(what)


async def _line(what: str, check: Callable[[], Awaitable[str]]) -> Line:
    try:
        return Line(what=what, is_right=True, detail=await check())
    except Wrong as wrong:
        return Line(what=what, is_right=False, detail=str(wrong))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding, and the other parts are still looked at
        first = (str(error).splitlines() or [""])[0][:160]
        return Line(what=what, is_right=False, detail=f"{type(error).__name__}: {first}")
