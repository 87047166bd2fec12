"""What must hold in a world: checked at each Commit, at each call of the painter, and once all is quiet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from shared import events
from shared.adapters.firestore import Write
from shared.retry import MOST_ATTEMPTS
from shared.task import Status, final_status
from tests.properties.outside import Call, Painter, Receiver
from tests.properties.processes import MODEL
from tests.properties.virtual_clock import VirtualClock

VIEW_AGE: Final = timedelta(seconds=7)
"""How long after a change to the pool a process may still act on what it saw before."""
_STEPS: Final = {
    ("pending", "processing"),
    ("pending", "completed"),
    ("pending", "failed"),
    ("pending", "cancelled"),
    ("processing", "processing"),
    ("processing", "pending"),
    ("processing", "completed"),
    ("processing", "failed"),
    ("processing", "cancelled"),
}
_ASKED: Final = {("completed", "pending"), ("failed", "pending"), ("cancelled", "pending")}


class Violation(AssertionError):
    """Something that must never be was seen."""


def demand(holds: object, what: str) -> None:
    if not holds:
        raise Violation(what)


Fields = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Books:
    peek: Callable[[str], Fields | None]
    clock: VirtualClock
    keys: dict[str, tuple[str, int]]
    """Key id → its quota domain and `maxConcurrent`."""
    painter: Painter
    tasks: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    users: set[str] = field(default_factory=set)
    reopened: Counter[str] = field(default_factory=Counter)
    cancelled: set[str] = field(default_factory=set)
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(task, what) → how often: shots that got a picture, tasks that ended."""
    cooled_at: dict[str, datetime] = field(default_factory=dict)
    disabled_at: dict[str, datetime] = field(default_factory=dict)

    def before(self, writes: Sequence[Write]) -> dict[str, Fields | None]:
        return {write.path: self.peek(write.path) for write in writes}

    def committed(self, before: dict[str, Fields | None], *, by: str) -> None:
        """Every document that a Commit touched went a step that it may go."""
        for path, old in before.items():
            new = self.peek(path)
            if new is None:
                demand(path.startswith("stash/"), f"{path} was deleted")
                continue
            match path.split("/"):
                case ["tasks", task_id]:
                    self._task_step(task_id, old, new)
                case ["tasks", task_id, "shots", index]:
                    if old is not None:
                        self._shot_step(task_id, index, old, new, by)
                case ["events", event_id]:
                    if old is None:
                        self.events.append(event_id)
                case ["users", _]:
                    self.users.add(path)
                    demand(new["openTasks"] >= 0, f"{path} has {new['openTasks']} open tasks")
                case ["domains", domain]:
                    self._domain_step(domain, old or {}, new)
                case ["keys", key_id]:
                    if new.get("enabled") is False:
                        self.disabled_at.setdefault(key_id, self.clock.now())

    def _task_step(self, task_id: str, old: Fields | None, new: Fields) -> None:
        if old is None:
            self.tasks.append(task_id)
            return
        was, is_ = Status(old["status"]).is_final, Status(new["status"]).is_final
        demand(
            not (was and is_) or old["status"] == new["status"],
            f"task {task_id} ended as {old['status']} and then as {new['status']}",
        )
        if was and not is_:
            self.reopened[task_id] += 1
        if is_ and not was:
            self.ends[task_id, "task"] += 1
        if "cancelledAt" in new:
            self.cancelled.add(task_id)

    def _shot_step(self, task_id: str, index: str, old: Fields, new: Fields, by: str) -> None:
        named = f"shot {task_id}/{index}"
        step = (old["status"], new["status"])
        claim, now = old.get("claim"), self.clock.now()
        demand(new["attempts"] <= MOST_ATTEMPTS, f"{named} was claimed {new['attempts']} times")
        if claim is not None and new.get("claim") is not None and claim["token"] != new["claim"]["token"]:
            demand(claim["until"] <= now, f"{named} was taken from {claim['token']} while it was at work")
        if step[0] != step[1] or step == ("processing", "processing"):
            allowed = step in _STEPS or (by == "entry" and step in _ASKED)
            demand(allowed, f"{named} went from {step[0]} to {step[1]} by {by}")
        if step[0] != step[1] and step[1] == "completed":
            self.ends[task_id, "picture"] += 1

    def _domain_step(self, domain: str, old: Fields, new: Fields) -> None:
        was, is_ = (found.get("coolUntil", {}).get(MODEL, 0) for found in (old, new))
        demand(is_ >= was, f"the cooling of {domain} moved backwards, from {was} to {is_}")
        if is_ > was or _hits(new) > _hits(old):
            self.cooled_at[domain] = self.clock.now()

    def call_begun(self, call: Call) -> None:
        """The painter is about to work."""
        domain, most = self.keys[call.key_id]
        in_flight = self.painter.in_flight()
        on_key = sum(other.key_id == call.key_id for other in in_flight)
        demand(on_key <= most, f"{on_key} calls at once on {call.key_id}, which allows {most}")
        job = call.job
        shot = self.peek(f"tasks/{job.task_id}/shots/{job.index}")
        assert shot is not None
        demand(shot["status"] != "completed", f"{job.task_id}/{job.index} is drawn though it is completed")
        if job.process.slow_until > self.clock.now():
            return
        now = self.clock.now()
        disabled_at = self.disabled_at.get(call.key_id)
        demand(
            disabled_at is None or now - disabled_at <= VIEW_AGE,
            f"{call.key_id} is used though it was disabled at {disabled_at}",
        )
        health = self.peek(f"domains/{domain}") or {}
        cooled_at = self.cooled_at.get(domain)
        if cooled_at is None or not _hits(health) or now - cooled_at <= VIEW_AGE:
            return
        cool_until = health["coolUntil"][MODEL] / 1000
        demand(cool_until <= now.timestamp(), f"{domain} is called while it cools")
        begun_since = [
            other
            for other in in_flight
            if self.keys[other.key_id][0] == domain and other.begun > cooled_at + VIEW_AGE
        ]
        demand(len(begun_since) <= 1, f"{len(begun_since)} calls at once try {domain}, which is recovering")

    def is_quiet(self) -> bool:
        """Whether every task is final and every event has arrived, as far as the documents say."""
        return all(Status(self._task(task_id)["status"]).is_final for task_id in self.tasks) and all(
            event["publishedAt"] is not None and not event["undelivered"]
            for event_id in self.events
            if (event := self._event(event_id))
        )

    def unfinished(self) -> list[str]:
        tasks = [f"task {i}" for i in self.tasks if not Status(self._task(i)["status"]).is_final]
        return tasks + [
            f"{event['eventType']} {i}"
            for i in self.events
            if (event := self._event(i))["publishedAt"] is None or event["undelivered"]
        ]

    def last_deadline(self) -> datetime:
        return max((self._task(task_id)["deadline"] for task_id in self.tasks), default=self.clock.now())

    def closed(self, receivers: dict[str, Receiver]) -> None:
        """All is quiet: do the documents agree with each other and with what happened outside?"""
        told: Counter[tuple[str, str]] = Counter()
        for event_id in self.events:
            event = self._event(event_id)
            told[event["taskId"], _heading(event["eventType"])] += 1
            for name in events.subscribers_of(event["eventType"]):
                demand(
                    event["deliveries"].get(name, {}).get("state") == "delivered",
                    f"{event['eventType']} {event_id} was not delivered to {name}",
                )
                demand(
                    name not in receivers or event_id in receivers[name].got,
                    f"{name} never got {event['eventType']} {event_id}",
                )
        for task_id in self.tasks:
            self._task_closed(task_id, told)
        for user in self.users:
            left = (self.peek(user) or {})["openTasks"]
            demand(left == 0, f"{user} has {left} open tasks after all have ended")
        self._nothing_paid_in_vain()

    def _task_closed(self, task_id: str, told: Counter[tuple[str, str]]) -> None:
        task = self._task(task_id)
        shots = self._shots(task_id, task["total"])
        by_status = Counter(shot["status"] for shot in shots)
        completed, cancelled = by_status["completed"], by_status["cancelled"]
        counts = {
            "total": task["total"],
            "completed": completed,
            "failed": by_status["failed"],
            "cancelled": cancelled,
        }
        demand(sum(counts.values()) == 2 * task["total"], f"{task_id} has unfinished shots: {by_status}")
        demand(task["finished"] == counts, f"{task_id} says {task['finished']}, its shots say {counts}")
        status = final_status(total=task["total"], completed=completed, cancelled=cancelled)
        demand(task["status"] == status, f"{task_id} is {task['status']}, its shots make it {status}")
        rounds = 1 + self.reopened[task_id]
        demand(self.ends[task_id, "task"] == rounds, f"{task_id} ended {self.ends[task_id, 'task']} times")
        finals = told[task_id, "final"]
        demand(finals == rounds, f"{task_id} has {finals} final events for {rounds} rounds")
        pictures, news = self.ends[task_id, "picture"], told[task_id, events.IMAGE_GENERATED]
        demand(pictures == news, f"{task_id}: {pictures} pictures, {news} events of pictures")
        for shot in shots:
            demand("enqueueAt" not in shot, f"the sweep would still look after a final shot of {task_id}")

    def _nothing_paid_in_vain(self) -> None:
        """A picture that was paid for is somebody's, unless its process was killed, harmed or cancelled."""
        kept: set[str] = set()
        for task_id in self.tasks:
            for shot in self._shots(task_id, self._task(task_id)["total"]):
                kept |= {
                    found["cosKey"]
                    for found in (shot.get("result") or {}, *shot.get("previous", []))
                    if found
                }
        for call in self.painter.calls:
            if not call.paid or call.cos_key in kept or call.job.task_id in self.cancelled:
                continue
            demand(
                call.job.harmed or not call.job.process.alive,
                f"a picture of {call.job.task_id}/{call.job.index} was paid for and is nobody's",
            )

    def _task(self, task_id: str) -> Fields:
        found = self.peek(f"tasks/{task_id}")
        assert found is not None
        return found

    def _shots(self, task_id: str, total: int) -> list[Fields]:
        found = [self.peek(f"tasks/{task_id}/shots/{index}") for index in range(total)]
        return [shot for shot in found if shot is not None]

    def _event(self, event_id: str) -> Fields:
        found = self.peek(f"events/{event_id}")
        assert found is not None
        return found


def _hits(health: Fields) -> int:
    hits: int = health.get("hits", {}).get(MODEL, 0)
    return hits


def _heading(event_type: str) -> str:
    return "final" if event_type in events.FINAL_TYPES else event_type
