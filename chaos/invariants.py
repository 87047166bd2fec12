"""What must be true after any storm: pure checks over the books, each a list of sentences about what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from chaos.books import FINAL, FINAL_EVENTS, Books, Fields
from shared.events import WANTED

Check = Callable[[Books], Iterator[str]]

_SHOT_FINAL: Final = frozenset({"completed", "failed", "cancelled"})
_PICTURE_STEPS: Final = frozenset({"stored", "from_cache"})
_SAME_CLOCK: Final = timedelta(milliseconds=500)
"""How far a moment in the diary and one in the store may be apart."""


def every_order_is_one_task(books: Books) -> Iterator[str]:
    """A request that is repeated until it is answered is accepted once."""
    for task_id in books.accepted.keys() - books.tasks.keys():
        yield f"{task_id} was accepted and is not there"
    if len(books.tasks) != books.orders:
        yield f"{books.orders} orders became {len(books.tasks)} tasks"


def every_shot_is_final(books: Books) -> Iterator[str]:
    """And in exactly one final state: what a shot has agrees with what it is."""
    for task_id, total in books.accepted.items():
        missing = set(range(total)) ^ set(books.shots.get(task_id, {}))
        if missing:
            yield f"{task_id} promised {total} shots; missing or too many: {sorted(missing)}"
    for name, shot in books.all_shots():
        status = shot["status"]
        if status not in _SHOT_FINAL:
            yield f"{name} is {status}"
            continue
        left = {"claim", "enqueueAt"} & {field for field, value in shot.items() if value is not None}
        if left:
            yield f"{name} is {status} and still has {sorted(left)}"
        result = shot.get("result")
        if (status == "completed") != (result is not None):
            yield f"{name} is {status} {'with' if result else 'without'} a picture"
        if shot.get("pictures") != int(status == "completed"):
            yield f"{name} is {status} and counts {shot.get('pictures')} pictures"
        if status == "failed" and not shot.get("errors"):
            yield f"{name} failed without a reason"
        if result is not None and result["cosKey"] not in books.objects:
            yield f"{name}: its picture {result['cosKey']} is not in the store"


def every_task_is_final(books: Books) -> Iterator[str]:
    """And its counts and its status are those of its shots."""
    for task_id, task in books.tasks.items():
        if task["status"] not in FINAL:
            yield f"{task_id} is {task['status']}"
            continue
        counted = _counts(books.shots[task_id])
        if task.get("finished") != counted:
            yield f"{task_id} says {task.get('finished')}, its shots say {counted}"
        if task["status"] != _status(counted):
            yield f"{task_id} is {task['status']} with {counted}"
        if task.get("checkAt") is not None:
            yield f"{task_id} is {task['status']} and to be looked at again"


def nobody_gives_up_early(books: Books) -> Iterator[str]:
    """A shot ends for want of time only when the time of its task, as it was last opened, is over."""
    for task_id, task in books.tasks.items():
        for index, shot in books.shots[task_id].items():
            last = (shot.get("errors") or [{}])[-1]
            if (
                shot["status"] == "failed"
                and last.get("code") == "DEADLINE_EXCEEDED"
                and last["timestamp"] < task["deadline"]
            ):
                early = (task["deadline"] - last["timestamp"]).total_seconds()
                yield f"{task_id}/{index} ended for want of time {early:.1f} s before its time was up"


def every_picture_is_of_the_plan(books: Books) -> Iterator[str]:
    """A task is prepared once: what was drawn is what was planned, and each source is told of once."""
    told = Counter(
        event["taskId"] for event in books.events.values() if event["eventType"] == "image.analyzed"
    )
    for task_id, task in books.tasks.items():
        prompts = task.get("prompts", {}).get("final", ())
        for index, shot in books.shots[task_id].items():
            drawn = any(step["step"] == "stored" for step in shot.get("life", ()))
            if drawn and (index >= len(prompts) or shot.get("prompt") != prompts[index]):
                yield f"{task_id}/{index} was drawn to another prompt than its task has"
        if prompts and told[task_id] != len(task["images"]):
            yield f"{task_id} has {len(task['images'])} sources and told of {told[task_id]}"


def no_key_is_overused(books: Books) -> Iterator[str]:
    for key_id, most in books.limits.concurrency.items():
        highest = books.stats["keys"][key_id]["maxConcurrency"]
        if highest > most:
            yield f"{key_id} had {highest} calls in flight, {most} are allowed"


def no_slot_is_lost(books: Books) -> Iterator[str]:
    """A lease has a holder and an end; there are as many slots as the keys allow."""
    known = {
        f"{key_id}.{number}" for key_id, most in books.limits.concurrency.items() for number in range(most)
    }
    if known != set(books.slots):
        yield f"slots missing or too many: {sorted(known ^ set(books.slots))}"
    for slot_id, slot in books.slots.items():
        if slot["freeAt"] > books.read_at + books.limits.lease:
            yield f"{slot_id} is leased until {slot['freeAt']}, longer than a lease lasts"
        if slot["freeAt"] > books.read_at and slot.get("holder") is None:
            yield f"{slot_id} is leased by nobody until {slot['freeAt']}"
        elif slot["freeAt"] > books.read_at and not books.stats["total"]["concurrency"]:
            yield f"{slot_id} is leased until {slot['freeAt']} when nothing is left to draw"


def every_event_is_delivered(books: Books) -> Iterator[str]:
    """To every subscriber that wants it, as the event says and as the subscribers' own books say."""
    received = {entry["webhookId"] for entry in books.inbox if entry["verified"]}
    for entry in books.inbox:
        if not entry["verified"]:
            yield f"the receiver got {entry['webhookId']} with a wrong signature"
    for event_id, event in books.events.items():
        kind = event["eventType"]
        name = f"{kind} {event_id} of {event['taskId']}"
        if event.get("publishedAt") is None or event.get("publishBy") is not None:
            yield f"{name} was never published"
            continue
        for subscriber, wanted in WANTED.items():
            state = event.get("deliveries", {}).get(subscriber, {}).get("state")
            if kind in wanted and state != "delivered":
                yield f"{name}: {subscriber} has it as {state}"
        if event.get("undelivered"):
            yield f"{name} is undelivered to {event['undelivered']}"
        if kind in WANTED["notification"] and event_id not in received:
            yield f"{name} is not in the receiver's inbox"
        if kind in WANTED["tag-indexer"] and event["taskId"] not in books.tagged:
            yield f"{name}: the index of tags does not know the task"


def every_end_of_a_shot_is_told_once(books: Books) -> Iterator[str]:
    """A picture is one `image.generated`; a failure one `image.failed`, unless the whole task could not be prepared."""
    told = Counter(
        (event["eventType"], event["taskId"], event["payload"]["index"])
        for event in books.events.values()
        if event["eventType"] in ("image.generated", "image.failed")
    )
    for task_id, shots in books.shots.items():
        unprepared = {error["code"] for error in books.tasks.get(task_id, {}).get("errors", ())}
        for index, shot in shots.items():
            steps = shot.get("life", ())
            pictures = sum(step["step"] in _PICTURE_STEPS for step in steps)
            if told["image.generated", task_id, index] != pictures:
                yield (
                    f"{task_id}/{index} has had {pictures} pictures and "
                    f"{told['image.generated', task_id, index]} image.generated"
                )
            failures = sum(step["step"] == "failed" and step["code"] not in unprepared for step in steps)
            if told["image.failed", task_id, index] < failures:
                yield (
                    f"{task_id}/{index} has failed {failures} times and told of "
                    f"{told['image.failed', task_id, index]}"
                )


def every_round_ends_with_one_event(books: Books) -> Iterator[str]:
    """A task that is opened again begins a new round; each round has one final event, the last one too."""
    for task_id, task in books.tasks.items():
        finals = [event for event in books.events_of(task_id) if event["eventType"] in FINAL_EVENTS]
        reopened = books.reopened(task_id)
        if not finals or (reopened and finals[-1]["timestamp"] < reopened[-1]):
            yield f"{task_id} is {task['status']} and its last round has no final event"
            continue
        for one, next_one in pairwise(finals):
            if not any(one["timestamp"] <= at <= next_one["timestamp"] for at in reopened):
                yield f"{task_id} has two final events for one round: {one['eventId']}, {next_one['eventId']}"
        if finals[-1]["payload"]["status"] != task["status"]:
            yield f"{task_id} is {task['status']}, its final event says {finals[-1]['payload']['status']}"


def the_receiver_knows_the_end(books: Books) -> Iterator[str]:
    """Of the last round, keeping the highest progress and the status of the latest final callback."""
    for task_id, task in books.tasks.items():
        if task["status"] not in FINAL:
            continue
        since = max(books.reopened(task_id), default=0)
        bodies = [
            entry["body"]
            for entry in books.inbox
            if entry["body"]["taskId"] == task_id and entry["body"]["timestamp"] >= since
        ]
        finals = [body for body in bodies if body["eventType"] in FINAL_EVENTS]
        folded = (
            max((body["progress"] for body in bodies), default=0.0),
            max(finals, key=lambda body: body["timestamp"])["status"] if finals else None,
        )
        completed = _counts(books.shots[task_id])["completed"]
        truth = (completed / task["total"], task["status"])
        if folded != truth:
            yield f"{task_id} is {truth}, and the receiver believes {folded}"


def nothing_is_drawn_without_need(books: Books) -> Iterator[str]:
    """Every call belongs to a claim. A picture that was paid for and not kept belongs to a claim that was cut short."""
    claims = short = pictures = 0
    for _, shot in books.all_shots():
        for claim in _claims(shot):
            claims += 1
            pictures += claim.end == "stored"
            short += claim.was_cut_short
    total = books.stats["total"]
    if total["calls"] > claims:
        yield f"{total['calls']} calls were made for {claims} claims"
    if total["ok"] - pictures > short:
        yield f"{total['ok']} pictures were paid for, {pictures} kept, and only {short} claims were cut short"
    if pictures > total["ok"]:
        yield f"{pictures} pictures were kept and {total['ok']} drawn"


def only_a_crash_abandons_a_claim(books: Books) -> Iterator[str]:
    """A claim that neither ended nor was ended has a killed `generate` within its time."""
    for name, shot in books.all_shots():
        for claim in _claims(shot):
            if not claim.is_abandoned:
                continue
            over = claim.at + books.limits.claim
            if not any(
                begun - _SAME_CLOCK <= over and ended + _SAME_CLOCK >= claim.at
                for begun, ended in books.crashes
            ):
                yield f"{name} was claimed at {claim.at} and left alone, and nobody was killed then"


CHECKS: Final[tuple[Check, ...]] = (
    every_order_is_one_task,
    every_shot_is_final,
    every_task_is_final,
    nobody_gives_up_early,
    every_picture_is_of_the_plan,
    no_key_is_overused,
    no_slot_is_lost,
    every_event_is_delivered,
    every_end_of_a_shot_is_told_once,
    every_round_ends_with_one_event,
    the_receiver_knows_the_end,
    nothing_is_drawn_without_need,
    only_a_crash_abandons_a_claim,
)


def violations(books: Books) -> dict[str, list[str]]:
    """By invariant; empty when all is well."""
    found = {check.__name__: list(check(books)) for check in CHECKS}
    return {name: sentences for name, sentences in found.items() if sentences}


class _Claim:
    """One attempt at a shot, and the step that ended it."""

    def __init__(self, at: datetime, end: str | None, code: str | None) -> None:
        self.at = at
        self.end = end
        self._code = code

    @property
    def is_abandoned(self) -> bool:
        """Somebody else had to take over, or the time of the task ran out over it."""
        return self.end in (None, "claimed", "from_cache") or self._code == "DEADLINE_EXCEEDED"

    @property
    def was_cut_short(self) -> bool:
        """Its picture may have been drawn for nothing: a crash, a cancel, an answer or an upload that came too late."""
        return self.is_abandoned or self.end == "cancelled" or self._code == "TIMEOUT"


def _claims(shot: Fields) -> Iterator[_Claim]:
    steps = [step for step in shot.get("life", ()) if step["step"] != "swept"]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step["step"] == "claimed":
            yield _Claim(step["at"], after["step"] if after else None, after.get("code") if after else None)


def _counts(shots: Mapping[int, Fields]) -> dict[str, int]:
    found = Counter(str(shot["status"]) for shot in shots.values())
    return {"total": len(shots), **{status: found[status] for status in ("completed", "failed", "cancelled")}}


def _status(counts: Mapping[str, int]) -> str:
    if counts["completed"] == counts["total"]:
        return "completed"
    if counts["cancelled"]:
        return "cancelled"
    return "partial" if counts["completed"] else "failed"
