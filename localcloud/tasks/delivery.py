"""How a task reaches its worker: one HTTP request per attempt, and how that may be made to go wrong."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from localcloud.faults import Faults
from localcloud.tasks.counts import Counts
from localcloud.tasks.dispatcher import Deliver
from localcloud.tasks.http1 import Http1Client, NoAnswer, NoConnection
from localcloud.tasks.oidc import Signer
from localcloud.tasks.task import Delivery, Outcome
from shared.clock import Clock

_LONGEST_RETRY_AFTER = timedelta(hours=1)


class HttpDelivery:
    def __init__(self, client: Http1Client, *, signer: Signer, clock: Clock) -> None:
        self._client = client
        self._signer = signer
        self._clock = clock

    async def __call__(self, delivery: Delivery) -> Outcome:
        call = delivery.call
        headers = delivery.headers
        if call.token is not None:
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            headers["Authorization"] = f"Bearer {self._signer.bearer(call.token)}"
        try:
            answer = await self._client.send(call.method, call.url, headers, call.body)
        except NoConnection as error:
            return Outcome(status=None, reason=f"Connection failed ({error})")
        except NoAnswer as error:
            return Outcome(status=None, reason=f"No answer ({error})")
        return Outcome(
            status=answer.status,
            reason=f"HTTP status code {answer.status}",
            retry_after=_retry_after(answer.headers.get("retry-after"), self._clock.now()),
        )


class FaultyDelivery:
    """Delivers as the rules for `dispatch:<queue id>` say.

    `duplicate` delivers twice (at once, with the detail `overlap`); `lose_answer`, or any word in the phase
    `after`, delivers and then behaves as if no answer had come; `drop`, like any other word, never connects.
    """

    def __init__(self, deliver: Deliver, *, faults: Faults, counts: Counts) -> None:
        self._deliver = deliver
        self._faults = faults
        self._counts = counts

    async def __call__(self, delivery: Delivery) -> Outcome:
        operation = f"dispatch:{delivery.queue_id}"
        self._counts.dispatched(delivery.queue_id)
        fault = await self._faults.before(operation)
        if fault is None:
            outcome = await self._deliver(delivery)
        elif fault.error == "duplicate":
            outcome = await self._twice(delivery, overlap=bool(fault.detail.get("overlap")))
        elif fault.error == "lose_answer":
            await self._deliver(delivery)
            outcome = Outcome(status=None, reason="Answer lost (injected)")
        else:
            return Outcome(status=None, reason=f"Not delivered (injected: {fault.error!a})")
        if await self._faults.after(operation):
            return Outcome(status=None, reason="Answer lost (injected)")
        return outcome

    async def _twice(self, delivery: Delivery, *, overlap: bool) -> Outcome:
        self._counts.dispatched(delivery.queue_id)
        if overlap:
            first, _ = await asyncio.gather(self._deliver(delivery), self._deliver(delivery))
            return first
        first = await self._deliver(delivery)
        await self._deliver(delivery)
        return first


def _retry_after(value: str | None, now: datetime) -> timedelta | None:
    """Seconds or a date, as RFC 9110 has it; nonsense is ignored."""
    if value is None:
        return None
    try:
        if value.isascii() and value.isdigit():
            wait = timedelta(seconds=min(int(value[:10]), 86_400))
        else:
            wait = parsedate_to_datetime(value) - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait, timedelta(0)), _LONGEST_RETRY_AFTER)
