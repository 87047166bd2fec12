"""What will happen in a storm: orders, changes of mind, spells of misbehaviour and deaths, all drawn from a seed.

Pure: the same seed gives the same plan. What comes of it depends on the machine, which is why the checks are about
invariants and not about outcomes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from localcloud.environment import Key
from localcloud.faults import Rule
from localcloud.services import ServiceName

Victim = Literal["entry", "generate", "complete", "worker"]
"""A function with all its processes, or one of the workers of `generate`."""
ChangeKind = Literal["cancel", "retry", "regenerate"]

_SIZES: Final = (1, 1, 1, 2, 3, 4, 6, 9, 12, 24)
_LONGEST_SPELL: Final = 4.0
CLOCK_MARGIN: Final = 0.9
"""Seconds that two clocks may differ: less than a lease lasts longer than the call that it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    at: float
    """Seconds after the beginning, here and below."""
    count: int
    name: str
    """Its prompt; no two are the same unless a picture of the cache is meant to be found."""
    use_cache: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """A service misbehaves for a while."""

    at: float
    seconds: float
    service: ServiceName
    rules: tuple[Rule, ...]

    def told(self) -> str:
        return f"{self.service}: " + ", ".join(_told(rule) for rule in self.rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    at: float
    victim: Victim
    down: float
    """Seconds until it is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """The clocks of `generate`'s workers jump."""

    at: float
    by: tuple[float, ...]
    """How far each is from the truth afterwards, in seconds; who comes later has the right time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    at: float
    kind: ChangeKind
    order: int
    index: int
    """Of the shot, to regenerate it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    seconds: float
    orders: tuple[Order, ...]
    spells: tuple[Spell, ...]
    deaths: tuple[Death, ...]
    changes: tuple[Change, ...]
    jumps: tuple[Jump, ...] = ()

    @property
    def shots(self) -> int:
        return sum(order.count for order in self.orders)


def draw_plan(*, seed: int, shots: int, seconds: float, keys: Sequence[Key]) -> Plan:
    rng = random.Random(seed)
    orders = _orders(rng, shots, seconds)
    return Plan(
        seed=seed,
        seconds=seconds,
        orders=orders,
        spells=_spells(rng, seconds, keys),
        deaths=_deaths(rng, seconds),
        changes=_changes(rng, seconds, orders),
        jumps=_jumps(rng, seconds),
    )


def _orders(rng: random.Random, shots: int, seconds: float) -> tuple[Order, ...]:
    orders: list[Order] = []
    left = shots
    while left:
        count = min(left, rng.choice(_SIZES))
        left -= count
        twin = rng.choice(orders) if orders and rng.random() < 0.1 else None
        orders.append(
            Order(
                at=rng.uniform(0, seconds * 0.7),
                count=count,
                name=twin.name if twin and twin.count == count else f"order {len(orders)}",
                use_cache=rng.random() < 0.8,
            )
        )
    return tuple(sorted(orders, key=lambda order: order.at))


def _deaths(rng: random.Random, seconds: float) -> tuple[Death, ...]:
    """About one in six seconds, and of everybody at least one."""
    victims: list[Victim] = ["generate", "worker", "complete", "entry"]
    while len(victims) < seconds / 6:
        victims.append(rng.choice(("generate", "worker", "worker", "complete", "entry")))
    deaths = [
        Death(at=rng.uniform(0.1, 0.9) * seconds, victim=victim, down=rng.choice((0.0, 0.0, 0.5, 2.0)))
        for victim in victims
    ]
    return tuple(sorted(deaths, key=lambda death: death.at))


def _jumps(rng: random.Random, seconds: float) -> tuple[Jump, ...]:
    """About one in five seconds."""
    times = sorted(rng.uniform(0, seconds) for _ in range(max(2, round(seconds / 5))))
    farthest = CLOCK_MARGIN / 2
    return tuple(Jump(at=at, by=tuple(rng.uniform(-farthest, farthest) for _ in range(2))) for at in times)


def _changes(rng: random.Random, seconds: float, orders: Sequence[Order]) -> tuple[Change, ...]:
    changes: list[Change] = []
    for number, order in enumerate(orders):
        luck = rng.random()
        if luck < 0.12:
            changes.append(_change(rng, "cancel", number, order, order.at + rng.uniform(0, 6)))
        elif luck < 0.35:
            changes.append(_change(rng, "regenerate", number, order, rng.uniform(order.at + 3, seconds)))
        elif luck < 0.6:
            changes.append(_change(rng, "retry", number, order, rng.uniform(order.at + 3, seconds)))
    return tuple(sorted(changes, key=lambda change: change.at))


def _change(rng: random.Random, kind: ChangeKind, number: int, order: Order, at: float) -> Change:
    return Change(at=at, kind=kind, order=number, index=rng.randrange(order.count))


def _spells(rng: random.Random, seconds: float, keys: Sequence[Key]) -> tuple[Spell, ...]:
    """Each kind once, in a random order, then more at random until two or three overlap at any time."""
    menu = _menu(rng, keys)
    wanted = max(len(menu), round(seconds * 2.5 / (_LONGEST_SPELL / 2)))
    chosen = [*menu, *(rng.choice(menu) for _ in range(wanted - len(menu)))]
    spells = [
        Spell(
            at=rng.uniform(0, seconds * 0.9),
            seconds=rng.uniform(0.5, _LONGEST_SPELL),
            service=service,
            rules=tuple(rules()),
        )
        for service, rules in chosen
    ]
    return tuple(sorted(spells, key=lambda spell: spell.at))


Kind = tuple[ServiceName, Callable[[], list[Rule]]]


def _menu(rng: random.Random, keys: Sequence[Key]) -> list[Kind]:
    """Every way to misbehave. What puts a whole quota domain to rest for long is aimed at one key."""

    def some_key() -> str:
        return f"generateContent:{rng.choice(keys).id}"

    def gemini(error: str, low: float, high: float, *, one_key: bool = False, **more: object) -> Kind:
        return "gemini", lambda: [
            Rule.model_validate(
                {
                    "operation": some_key() if one_key else "generateContent:*",
                    "error": error,
                    "probability": rng.uniform(low, high),
                    **more,
                }
            )
        ]

    def firestore(operation: str, error: str | None, low: float, high: float, **more: object) -> Kind:
        return "firestore", lambda: [_rule(operation, error, rng.uniform(low, high), **more)]

    def tasks(operation: str, error: str | None, low: float, high: float, **more: object) -> Kind:
        return "tasks", lambda: [_rule(operation, error, rng.uniform(low, high), **more)]

    last = f"generateContent:{keys[-1].id}"
    return [
        gemini("429_minute", 0.3, 0.9, detail={"retryDelay": "2s"}),
        gemini("429_minute", 1, 1, one_key=True, detail={"retryDelay": "3s"}),
        ("gemini", lambda: [_rule(last, "429_day", 1)]),
        gemini("500", 0.3, 0.7),
        gemini("503", 0.3, 1, one_key=True),
        gemini("hang", 0.2, 0.5),
        gemini("no_image", 0.2, 0.6),
        gemini("garbage", 0.2, 0.5),
        gemini("truncated", 0.2, 0.5),
        gemini("safety", 0.1, 0.3),
        gemini("disconnect", 0.1, 0.4),
        ("gemini", lambda: [_rule("generateContent:*", None, 0.5, latency=1.5, jitter=1.0)]),
        firestore("Commit", "ABORTED", 0.1, 0.5),
        firestore("Commit", "UNAVAILABLE", 0.1, 0.4, phase="after"),
        firestore("Commit", "UNAVAILABLE", 0.1, 0.4, phase="after"),
        firestore("*", "UNAVAILABLE", 0.05, 0.3),
        firestore("*", None, 0.2, 0.5, latency=0.1, jitter=1.5),
        firestore("Commit", None, 0.05, 0.2, latency=1.0, jitter=3.0, phase="after"),
        tasks("dispatch:*", "duplicate", 0.3, 1, detail={"overlap": True}),
        tasks("dispatch:*", "duplicate", 0.3, 1),
        tasks("dispatch:*", "lose_answer", 0.2, 0.6),
        tasks("dispatch:*", "drop", 0.2, 0.6),
        tasks("dispatch:*", None, 0.3, 0.8, jitter=3.0),
        tasks("CreateTask", "UNAVAILABLE", 0.1, 0.5),
        tasks("CreateTask", "UNAVAILABLE", 0.1, 0.5, phase="after"),
        ("cos", lambda: [_rule("PutObject", rng.choice(("500", "503")), rng.uniform(0.3, 1))]),
        ("cos", lambda: [_rule("PutObject", "500", rng.uniform(0.2, 0.6), phase="after")]),
        ("cos", lambda: [_rule("GetObject", "503", rng.uniform(0.3, 1))]),
        ("receiver", lambda: [_rule("callback", rng.choice(("500", "410", "redirect")), 1)]),
        ("receiver", lambda: [_rule("callback", "500", rng.uniform(0.2, 0.6), phase="after")]),
        ("receiver", lambda: [_rule("callback", rng.choice(("hang", "disconnect")), 0.4)]),
        ("openai", lambda: [_rule("chat.completions", rng.choice(("500", "hang")), 0.7)]),
        ("wechat", lambda: [_rule("batchdownloadfile", "http_500", 0.5)]),
    ]


def _rule(operation: str, error: str | None, probability: float, **more: object) -> Rule:
    return Rule.model_validate({"operation": operation, "error": error, "probability": probability, **more})


def _told(rule: Rule) -> str:
    word = rule.error or f"{rule.latency:g}-{rule.latency + rule.jitter:g} s late"
    when = "" if rule.phase == "before" else " when done"
    return f"{rule.operation} {word}{when} ({rule.probability:.0%})"
