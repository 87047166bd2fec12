"""Each check of `make chaos` passes a good book and catches the one broken in its own way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chaos.books import Books, Limits, unix_ms
from chaos.invariants import CHECKS, violations
from chaos.plan import draw_plan
from localcloud.environment import equal_keys

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
Fields = dict[str, Any]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def step(seconds: float, word: str, **more: Any) -> Fields:
    return {"at": at(seconds), "step": word, **more}


def a_picture(task_id: str, index: int, attempt: str = "a") -> Fields:
    return {"url": "http://cos/picture", "cosKey": f"pictures/{task_id}/{index}-{attempt}.webp"}


def an_event(event_id: str, kind: str, task_id: str, seconds: float, **payload: Any) -> Fields:
    wanted = {
        "image.generated": ["notification", "analytics"],
        "image.failed": ["notification", "analytics"],
        "task.completed": ["notification", "analytics", "tag-indexer"],
        "task.cancelled": ["notification", "analytics"],
        "task.created": ["analytics"],
        "image.analyzed": ["analytics", "tag-indexer"],
    }[kind]
    return {
        "eventId": event_id,
        "eventType": kind,
        "taskId": task_id,
        "timestamp": unix_ms(at(seconds)),
        "payload": payload,
        "publishedAt": at(seconds + 0.1),
        "undelivered": [],
        "deliveries": {name: {"state": "delivered"} for name in wanted},
    }


def a_callback(event: Fields, progress: float, status: str = "processing") -> Fields:
    body = {
        "taskId": event["taskId"],
        "eventType": event["eventType"],
        "timestamp": event["timestamp"],
        "progress": progress,
        "status": status,
    }
    return {"webhookId": event["eventId"], "verified": True, "body": body}


def good_books() -> Books:
    """One task of two shots, whose second was drawn again after a crash and asked for anew; one that was cancelled."""
    first = {
        "status": "completed",
        "pictures": 1,
        "prompt": "standing",
        "result": a_picture("t", 0),
        "life": [step(1, "claimed", key="k"), step(2, "stored")],
    }
    second = {
        "status": "completed",
        "pictures": 1,
        "prompt": "walking",
        "result": a_picture("t", 1, "c"),
        "previous": [a_picture("t", 1, "b")],
        "life": [
            step(1, "claimed", key="k"),
            step(5, "swept"),
            step(6, "claimed", key="k"),
            step(7, "put_back", code="NO_IMAGE_RETURNED"),
            step(9, "claimed", key="k"),
            step(10, "stored"),
            step(20, "asked_again"),
            step(21, "claimed", key="k"),
            step(22, "stored"),
        ],
    }
    third = {
        "status": "cancelled",
        "pictures": 0,
        "life": [step(1, "claimed", key="k"), step(2, "cancelled")],
    }
    fourth = {
        "status": "failed",
        "pictures": 0,
        "errors": [{"code": "CONTENT_POLICY_VIOLATION"}],
        "life": [step(1, "claimed", key="k"), step(1.5, "failed", code="CONTENT_POLICY_VIOLATION")],
    }
    events = [
        an_event("created", "task.created", "t", 0),
        an_event("analyzed", "image.analyzed", "t", 0.5),
        an_event("g0", "image.generated", "t", 2, index=0),
        an_event("g1", "image.generated", "t", 10, index=1),
        an_event("end1", "task.completed", "t", 11, status="completed"),
        an_event("g1again", "image.generated", "t", 22, index=1),
        an_event("end2", "task.completed", "t", 23, status="completed"),
        an_event("f1", "image.failed", "u", 1.5, index=1),
        an_event("end3", "task.cancelled", "u", 3, status="cancelled"),
    ]
    by_id = {event["eventId"]: event for event in events}
    counts = {"total": 2, "completed": 2, "failed": 0, "cancelled": 0}
    return Books(
        read_at=at(60),
        limits=Limits(lease=timedelta(seconds=4), claim=timedelta(seconds=7), concurrency={"k": 2}),
        accepted={"t": 2, "u": 2},
        orders=2,
        crashes=((at(2), at(2.1)),),
        tasks={
            "t": {
                "status": "completed",
                "total": 2,
                "finished": counts,
                "images": ["https://photos/1"],
                "deadline": at(50),
                "prompts": {"final": ["standing", "walking"]},
            },
            "u": {
                "images": ["https://photos/2"],
                "deadline": at(30),
                "status": "cancelled",
                "total": 2,
                "finished": counts | {"completed": 0, "failed": 1, "cancelled": 1},
            },
        },
        shots={"t": {0: first, 1: second}, "u": {0: third, 1: fourth}},
        events=by_id,
        slots={
            "k.0": {"freeAt": at(22), "holder": None},
            "k.1": {"freeAt": at(14), "holder": {"taskId": "t", "index": 1, "token": "x"}},
        },
        tagged=frozenset({"t"}),
        objects=frozenset({a_picture("t", n, name)["cosKey"] for n, name in ((0, "a"), (1, "b"), (1, "c"))}),
        stats={
            "total": {"calls": 7, "ok": 5, "concurrency": 0},
            "keys": {"k": {"maxConcurrency": 2}},
        },
        inbox=(
            a_callback(by_id["g0"], 0.5),
            a_callback(by_id["g0"], 0.5),
            a_callback(by_id["end1"], 1.0, "completed"),
            a_callback(by_id["g1"], 1.0),
            a_callback(by_id["end2"], 1.0, "completed"),
            a_callback(by_id["g1again"], 1.0),
            a_callback(by_id["f1"], 0.0),
            a_callback(by_id["end3"], 0.0, "cancelled"),
        ),
    )


def change_shot(books: Books, task_id: str, index: int, **fields: Any) -> Books:
    shots = copy.deepcopy({name: dict(of) for name, of in books.shots.items()})
    shots[task_id][index].update(fields)
    return replace(books, shots=shots)


def change_task(books: Books, task_id: str, **fields: Any) -> Books:
    return replace(books, tasks={**books.tasks, task_id: {**books.tasks[task_id], **fields}})


def change_event(books: Books, event_id: str, **fields: Any) -> Books:
    return replace(books, events={**books.events, event_id: {**books.events[event_id], **fields}})


def more_events(books: Books, *events: Fields) -> Books:
    return replace(books, events={**books.events, **{event["eventId"]: event for event in events}})


def without_event(books: Books, event_id: str) -> Books:
    return replace(books, events={name: event for name, event in books.events.items() if name != event_id})


def change_slot(books: Books, slot_id: str, **fields: Any) -> Books:
    return replace(books, slots={**books.slots, slot_id: {**books.slots[slot_id], **fields}})


def change_total(books: Books, **fields: Any) -> Books:
    return replace(books, stats={**books.stats, "total": {**books.stats["total"], **fields}})


def without_callback(books: Books, webhook_id: str) -> Books:
    return replace(books, inbox=tuple(e for e in books.inbox if e["webhookId"] != webhook_id))


def life_of(books: Books, task_id: str, index: int) -> list[Fields]:
    return list(books.shots[task_id][index]["life"])


BROKEN: list[tuple[str, str, Callable[[Books], Books]]] = [
    # An order that was accepted has vanished.
    (
        "every_order_is_one_task",
        "was accepted and is not there",
        lambda b: replace(b, accepted={**b.accepted, "gone": 1}, orders=2),
    ),
    # One order, repeated by its client, became two tasks.
    ("every_order_is_one_task", "1 orders became 2", lambda b: replace(b, orders=1)),
    ("every_shot_is_final", "is processing", lambda b: change_shot(b, "t", 0, status="processing")),
    (
        "every_shot_is_final",
        "missing or too many: [2]",
        lambda b: replace(b, accepted={**b.accepted, "t": 3}),
    ),
    # Final, and still somebody's.
    ("every_shot_is_final", "still has", lambda b: change_shot(b, "t", 0, claim={"token": "x"})),
    ("every_shot_is_final", "still has", lambda b: change_shot(b, "u", 1, enqueueAt=at(99))),
    # Two states at once.
    (
        "every_shot_is_final",
        "failed with a picture",
        lambda b: change_shot(b, "u", 1, result=a_picture("t", 0)),
    ),
    ("every_shot_is_final", "without a picture", lambda b: change_shot(b, "t", 0, result=None)),
    ("every_shot_is_final", "counts 0 pictures", lambda b: change_shot(b, "t", 0, pictures=0)),
    ("every_shot_is_final", "without a reason", lambda b: change_shot(b, "u", 1, errors=[])),
    ("every_shot_is_final", "not in the store", lambda b: replace(b, objects=frozenset())),
    ("every_task_is_final", "is processing", lambda b: change_task(b, "t", status="processing")),
    # The counts are those of an earlier round.
    (
        "every_task_is_final",
        "its shots say",
        lambda b: change_task(b, "t", finished={"total": 2, "completed": 1}),
    ),
    ("every_task_is_final", "is failed with", lambda b: change_task(b, "u", status="failed")),
    ("every_task_is_final", "looked at again", lambda b: change_task(b, "t", checkAt=at(99))),
    (
        "nobody_gives_up_early",
        "u/1 ended for want of time 10.0 s before",
        lambda b: change_shot(b, "u", 1, errors=[{"code": "DEADLINE_EXCEEDED", "timestamp": at(20)}]),
    ),
    # Another process prepared the task again, after shots had been drawn.
    (
        "every_picture_is_of_the_plan",
        "t/1 was drawn to another",
        lambda b: change_shot(b, "t", 1, prompt="sitting"),
    ),
    ("every_picture_is_of_the_plan", "t/0 was drawn to another", lambda b: change_task(b, "t", prompts={})),
    ("every_picture_is_of_the_plan", "told of 0", lambda b: without_event(b, "analyzed")),
    (
        "no_key_is_overused",
        "had 3 calls in flight, 2 are allowed",
        lambda b: replace(b, stats={**b.stats, "keys": {"k": {"maxConcurrency": 3}}}),
    ),
    ("no_slot_is_lost", "longer than a lease", lambda b: change_slot(b, "k.1", freeAt=at(3600))),
    ("no_slot_is_lost", "leased by nobody", lambda b: change_slot(b, "k.0", freeAt=at(62))),
    ("no_slot_is_lost", "nothing is left to draw", lambda b: change_slot(b, "k.1", freeAt=at(62))),
    ("no_slot_is_lost", "missing or too many: ['k.1']", lambda b: replace(b, slots={"k.0": b.slots["k.0"]})),
    ("every_event_is_delivered", "never published", lambda b: change_event(b, "g0", publishedAt=None)),
    (
        "every_event_is_delivered",
        "analytics has it as None",
        lambda b: change_event(b, "created", deliveries={}),
    ),
    (
        "every_event_is_delivered",
        "undelivered",
        lambda b: change_event(b, "g0", undelivered=["notification"]),
    ),
    # The event says that it was delivered, and the receiver knows nothing.
    ("every_event_is_delivered", "not in the receiver's inbox", lambda b: without_callback(b, "f1")),
    ("every_event_is_delivered", "index of tags", lambda b: replace(b, tagged=frozenset())),
    (
        "every_event_is_delivered",
        "wrong signature",
        lambda b: replace(b, inbox=(*b.inbox, {**b.inbox[0], "verified": False})),
    ),
    ("every_end_of_a_shot_is_told_once", "and 0 image.generated", lambda b: without_event(b, "g0")),
    (
        "every_end_of_a_shot_is_told_once",
        "and 2 image.generated",
        lambda b: more_events(b, an_event("twice", "image.generated", "t", 3, index=0)),
    ),
    ("every_end_of_a_shot_is_told_once", "told of 0", lambda b: without_event(b, "f1")),
    ("every_round_ends_with_one_event", "no final event", lambda b: without_event(b, "end3")),
    # The first round's end does not count for the second.
    ("every_round_ends_with_one_event", "no final event", lambda b: without_event(b, "end2")),
    (
        "every_round_ends_with_one_event",
        "two final events for one round",
        lambda b: more_events(b, an_event("end4", "task.completed", "t", 24, status="completed")),
    ),
    (
        "every_round_ends_with_one_event",
        "its final event says failed",
        lambda b: change_event(b, "end2", payload={"status": "failed"}),
    ),
    (
        "the_receiver_knows_the_end",
        "the receiver believes",
        lambda b: without_callback(b, "end2"),
    ),
    (
        "the_receiver_knows_the_end",
        "the receiver believes (1.0, 'cancelled')",
        lambda b: replace(b, inbox=(*b.inbox, a_callback(b.events["f1"], 1.0))),
    ),
    # A call for which nobody had the right.
    ("nothing_is_drawn_without_need", "calls were made for", lambda b: change_total(b, calls=8)),
    # Two claims were cut short (a crash, a cancel); three pictures more than were kept is one too many.
    ("nothing_is_drawn_without_need", "were paid for", lambda b: change_total(b, ok=6)),
    ("nothing_is_drawn_without_need", "were kept and", lambda b: change_total(b, ok=2)),
    ("only_a_crash_abandons_a_claim", "nobody was killed then", lambda b: replace(b, crashes=())),
    # A crash long after the claim's time explains nothing.
    ("only_a_crash_abandons_a_claim", "left alone", lambda b: replace(b, crashes=((at(30), at(31)),))),
    # The task's time ran out over a claim that nobody had.
    (
        "only_a_crash_abandons_a_claim",
        "left alone",
        lambda b: change_shot(
            b,
            "u",
            1,
            life=[step(40, "claimed", key="k"), step(50, "failed", code="DEADLINE_EXCEEDED")],
        ),
    ),
]


def test_a_good_book_passes() -> None:
    assert violations(good_books()) == {}


@pytest.mark.parametrize(("invariant", "sentence", "breaking"), BROKEN)
def test_a_broken_book_is_caught(invariant: str, sentence: str, breaking: Callable[[Books], Books]) -> None:
    found = violations(breaking(good_books()))
    assert any(sentence in told for told in found.get(invariant, ())), found


def test_every_check_is_proved_to_fail() -> None:
    assert {check.__name__ for check in CHECKS} == {name for name, _, _ in BROKEN}


def test_the_same_seed_is_the_same_storm() -> None:
    one, same, other = (
        draw_plan(seed=seed, shots=60, seconds=20, keys=equal_keys(3, 2)) for seed in (7, 7, 8)
    )
    assert one == same
    assert one.spells != other.spells
    assert one.shots == 60
    assert {death.victim for death in one.deaths} == {"entry", "generate", "complete", "worker"}
    assert {spell.service for spell in one.spells} == {
        *("firestore", "tasks", "gemini", "cos", "receiver", "openai", "wechat")
    }
