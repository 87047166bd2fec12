"""The checks of the world can fail: each breaks the code in one place, and is caught where the code as it is passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from google.cloud.firestore import Increment, Maximum

from shared.adapters.firestore import Write
from shared.flow.slots import SlotDesk
from shared.keys import Slot
from tests.properties.books import Violation
from tests.properties.outside import Answer
from tests.properties.processes import Variant
from tests.properties.scenario import Disturbance, KeySetting, Scenario
from tests.properties.stage import Stage, opened
from tests.properties.virtual_clock import MORNING
from tests.properties.world import World

ONE_SLOT = (KeySetting(domain="p", most=1),)
TWO_SLOTS = (KeySetting(domain="p", most=2),)


class ForgetfulDesk(SlotDesk):
    """Takes a slot that it has leased for a free one."""

    def _remember(self, slot: Slot) -> None:
        super()._remember(replace(slot, free_at=MORNING))


class HastyDesk(SlotDesk):
    """Gives back the slot of a call that was given up."""

    def abandon(self, slot: Slot) -> None:
        super().abandon(slot)
        self._released = asyncio.get_running_loop().create_task(self.give_back(slot))


class TrustingDesk(SlotDesk):
    """Takes what it has seen once for the present."""

    def _is_old(self) -> bool:
        return self._viewed_at is None


def unfenced(part: str) -> Callable[[Write], Write]:
    """Writes to such documents whatever they have become meanwhile."""
    return lambda write: replace(write, version=None) if part in write.path else write


def changed(part: str, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Callable[[Write], Write]:
    return lambda write: replace(write, fields=change(write.fields)) if part in write.path else write


def last_cooling_wins(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {model: value.value if isinstance(value, Maximum) else value for model, value in told.items()}
        if name == "coolUntil"
        else told
        for name, told in fields.items()
    }


def claims_end_early(fields: Mapping[str, Any]) -> dict[str, Any]:
    claim = fields.get("claim")
    if not isinstance(claim, dict):
        return dict(fields)
    until: datetime = fields["timings.claimedAt"] + timedelta(seconds=10)
    return {**fields, "claim": {**claim, "until": until}, "enqueueAt": until}


def open_forever(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if not isinstance(value, Increment)}


def nobody_looks(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "publishBy"}


def counts_wrongly(fields: Mapping[str, Any]) -> dict[str, Any]:
    told = fields.get("finished")
    return {**fields, "finished": {**told, "completed": 0}} if isinstance(told, dict) else dict(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    name: str
    variant: Variant
    keys: tuple[KeySetting, ...] = TWO_SLOTS
    tasks: tuple[int, ...] = (3, 2)
    answers: tuple[Answer, ...] = ()
    done: tuple[Disturbance, ...] = ()
    cache: bool = True
    seen: str = field(default="")
    """What the violation says."""


def often(kind: str, times: int = 6, after: int = 8) -> tuple[Disturbance, ...]:
    return tuple(Disturbance(after=after, kind=kind, which=number) for number in range(times))


BROKEN = (
    Broken(
        name="leased slots are taken for free", variant=Variant(desk=ForgetfulDesk), seen="calls at once on"
    ),
    Broken(
        name="a slot is free after a time-out",
        variant=Variant(desk=HastyDesk),
        keys=ONE_SLOT,
        answers=(Answer(outcome="hang"),),
        seen="calls at once on",
    ),
    Broken(
        name="a lease is shorter than a call",
        variant=Variant(lease=timedelta(seconds=30)),
        keys=ONE_SLOT,
        answers=(Answer(seconds=119),) * 3,
        seen="calls at once on",
    ),
    Broken(
        name="slots have no fence",
        variant=Variant(bend=unfenced("slots/")),
        keys=ONE_SLOT,
        seen="calls at once on",
    ),
    Broken(
        name="shots have no fence",
        variant=Variant(bend=unfenced("/shots/")),
        cache=False,
        done=often("twice"),
        seen="while it was at work|though it is completed|went from completed",
    ),
    Broken(
        name="claims end early",
        variant=Variant(bend=changed("/shots/", claims_end_early)),
        answers=(Answer(seconds=60),) * 4,
        done=often("answer_lost"),
        seen="paid for and is nobody's",
    ),
    Broken(
        name="tasks have no fence",
        variant=Variant(bend=unfenced("tasks/")),
        tasks=(1, 1),
        done=often("two_sweeps", after=3) + often("twice"),
        seen="final events|open tasks|while it was at work|though it is completed|went from",
    ),
    Broken(
        name="old views are trusted",
        variant=Variant(desk=TrustingDesk),
        tasks=(2,),
        answers=(Answer(), Answer(), Answer(outcome="limited")),
        done=(
            Disturbance(after=1000, kind="submit"),
            Disturbance(after=26, kind="submit"),
            *often("submit", 3, 3),
        ),
        seen="while it cools|is recovering",
    ),
    Broken(
        name="domains have no fence",
        variant=Variant(bend=unfenced("domains/")),
        done=often("pass_time", times=20),
        tasks=(4, 4),
        answers=(Answer(outcome="limited"),),
        seen="is recovering",
    ),
    Broken(
        name="the last cooling wins",
        variant=Variant(bend=changed("domains/", last_cooling_wins)),
        answers=(Answer(outcome="no_quota", seconds=5), Answer(outcome="limited_briefly", seconds=20)),
        seen="moved backwards",
    ),
    Broken(
        name="nobody sweeps",
        variant=Variant(sweeps=False),
        tasks=(2,),
        done=often("lose", 2, after=10),
        seen="not all is finished",
    ),
    Broken(
        name="events are not looked after",
        variant=Variant(bend=changed("events/", nobody_looks)),
        tasks=(2,),
        done=often("lose", 3, after=10),
        seen="not all is finished",
    ),
    Broken(
        name="closed tasks stay open",
        variant=Variant(bend=changed("users/", open_forever)),
        tasks=(1,),
        seen="open tasks after all",
    ),
    Broken(
        name="counts are wrong",
        variant=Variant(bend=changed("tasks/", counts_wrongly)),
        tasks=(1,),
        seen="its shots say",
    ),
)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with opened() as stage:
        yield stage


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_is_caught(stage: Stage, broken: Broken) -> None:
    for seed in range(60):
        scenario = Scenario(
            keys=broken.keys,
            tasks=broken.tasks,
            answers=broken.answers,
            disturbances=broken.done,
            cache=broken.cache,
            seed=seed,
        )
        try:
            stage.run(World(stage, scenario, broken.variant).run())
        except Violation as violation:
            caught = violation
            break
    else:
        pytest.fail(f"nobody noticed that {broken.name}")
    with pytest.raises(Violation, match=broken.seen):
        raise caught
    stage.run(World(stage, scenario).run())
