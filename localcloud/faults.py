"""How the embedded cloud misbehaves on request: one small rule language for every server in it.

A server asks `await faults.before(operation)` before it acts and `await faults.after(operation)` when the work is done
but not yet answered. A rule that matches waits (`latency`) and then, if it has an `error`, hands that word to the
server, which answers with it in its own protocol (a gRPC status name, an HTTP status, or a word of the server's own
such as `no_image`). A fault of phase `after` means: it happened, and the caller was told that it did not.
"""

from __future__ import annotations

import asyncio
import fnmatch
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Rule(BaseModel):
    """One way to misbehave."""

    model_config = ConfigDict(extra="forbid")

    operation: str = "*"
    """A glob over operation names, such as `Commit` or `generateContent:key1`."""
    latency: float = Field(default=0.0, ge=0, le=3600)
    """Seconds to wait first."""
    jitter: float = Field(default=0.0, ge=0, le=3600)
    """Up to this many seconds more, uniformly at random."""
    error: str | None = None
    """What to answer, in the server's own words; none: only the wait."""
    phase: Literal["before", "after"] = "before"
    probability: float = Field(default=1.0, ge=0, le=1)
    times: int | None = Field(default=None, ge=0)
    """How many matches it lasts for; none: until it is taken away."""
    detail: dict[str, Any] = Field(default_factory=dict)
    """More for the server, such as `{"retryDelay": "7s"}`."""


@dataclass(frozen=True, slots=True)
class Fault:
    error: str
    detail: dict[str, Any]


class Faults:
    """The rules in force on one server; changed while it runs."""

    def __init__(self, rules: Iterable[Rule] = (), *, seed: int | None = None) -> None:
        self._rules = list(rules)
        self._random = random.Random(seed)

    @property
    def rules(self) -> list[Rule]:
        return list(self._rules)

    def replace(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def clear(self) -> None:
        self._rules = []

    async def before(self, operation: str) -> Fault | None:
        return await self._apply(operation, "before")

    async def after(self, operation: str) -> Fault | None:
        return await self._apply(operation, "after")

    async def _apply(self, operation: str, phase: str) -> Fault | None:
        for rule in list(self._rules):
            if rule.phase != phase or not fnmatch.fnmatchcase(operation, rule.operation):
                continue
            if rule.probability < 1 and self._random.random() >= rule.probability:
                continue
            if rule.times is not None:
                if rule.times == 0:
                    continue
                rule.times -= 1
            wait = rule.latency + (self._random.uniform(0, rule.jitter) if rule.jitter else 0)
            if wait:
                await asyncio.sleep(wait)
            if rule.error is not None:
                return Fault(rule.error, rule.detail)
        return None
