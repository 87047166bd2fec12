"""The processes of a world: the real flow code on the real Firestore client, with every call to the outside in a gate.

A call is parked until the driver lets it through; between any two calls a process can be killed, which ends all its
tasks and forgets all that it had in memory.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar, cast

from google.cloud import firestore

from shared import events
from shared.adapters.cloud_tasks import Bell
from shared.adapters.firestore import Document, Documents, Version, Write
from shared.events import read_envelope
from shared.flow.claim import Claims, ShotWake
from shared.flow.complete import Desk, NotDelivered
from shared.flow.generate import PictureStyle, Studio
from shared.flow.prepare import Preparer
from shared.flow.reopen import Changes
from shared.flow.setback import Setbacks
from shared.flow.settle import Settler
from shared.flow.slots import SlotDesk
from shared.flow.stash import Stash
from shared.flow.submit import Limits, Reception
from shared.flow.subscribers import tag_indexer
from shared.flow.sweep import Sweep
from shared.flow.upload import Uploader
from shared.task import Patience
from tests.properties.outside import CALL_TIME, JOB, Fetcher, Job, Painter, Receiver, Store
from tests.properties.stage import OWNER, Stage
from tests.properties.virtual_clock import MORNING, VirtualClock

T = TypeVar("T")

MODEL: Final = "flash"
PATIENCE: Final = Patience()
URL_LIFETIME: Final = timedelta(days=7)
UPLOAD_TIME: Final = timedelta(seconds=60)
SLOT_WAIT: Final = timedelta(seconds=6)
TASK_DEADLINE: Final = timedelta(minutes=30)
LIMITS: Final = Limits(open_tasks=1000, pictures_per_day=100_000)


class Gate(Protocol):
    """Where every call of a process waits for the driver."""

    async def passing(
        self, process: Process, kind: str, call: Callable[[], Awaitable[T]], writes: Sequence[Write] = ()
    ) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The code as it is, or broken on purpose to see whether somebody notices."""

    desk: type[SlotDesk] = SlotDesk
    bend: Callable[[Write], Write] = lambda write: write
    lease: timedelta = timedelta(seconds=150)
    provider_busy: timedelta = timedelta(seconds=139)
    """How long a call that was given up goes on at the provider: nobody knows, only that the lease is longer."""
    sweeps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    stage: Stage
    client: firestore.AsyncClient
    gate: Gate
    clock: VirtualClock
    painter: Painter
    store: Store
    receivers: dict[str, Receiver]
    keys: Sequence[str]
    add_wake: Callable[[Any], None]
    variant: Variant


class Gated(Documents):
    def __init__(self, around: Surroundings, process: Process, rng: random.Random) -> None:
        super().__init__(around.client, rng=rng)
        self._around = around
        self._process = process

    async def commit(self, *writes: Write) -> list[Version]:
        bent = [self._around.variant.bend(write) for write in writes]
        plain = super().commit
        return await self._around.gate.passing(self._process, "commit", lambda: plain(*bent), bent)

    async def get(self, *paths: str) -> list[Document | None]:
        plain = super().get
        return await self._around.gate.passing(self._process, "get", lambda: plain(*paths))

    async def list(self, query: Any) -> list[Document]:
        plain = super().list
        return await self._around.gate.passing(self._process, "list", lambda: plain(query))

    async def count_and_sum(self, query: Any, field_name: str) -> tuple[int, int]:
        plain = super().count_and_sum
        return await self._around.gate.passing(self._process, "count", lambda: plain(query, field_name))


class Ringer:
    """The Cloud Tasks client as far as `Bell` uses it."""

    def __init__(self, around: Surroundings, process: Process) -> None:
        self._around = around
        self._process = process

    def queue_path(self, project: str, location: str, queue: str) -> str:
        return f"projects/{project}/locations/{location}/queues/{queue}"

    async def create_task(self, *, parent: str, task: Any, timeout: float, retry: Any) -> None:
        async def add() -> None:
            self._around.add_wake(task)

        await self._around.gate.passing(self._process, "ring", add)


@dataclass(eq=False, slots=True, kw_only=True)
class Process:
    name: str
    around: Surroundings
    rng: random.Random
    alive: bool = True
    slow_until: datetime = MORNING
    """A call of its own took long, so that it may act on old knowledge until then."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    documents: Documents = field(init=False)
    bell: Bell = field(init=False)
    settler: Settler = field(init=False)

    def __post_init__(self) -> None:
        self.documents = Gated(self.around, self, self.rng)
        self.bell = Bell(
            client=cast(Any, Ringer(self.around, self)),
            project="world",
            location="here",
            generate_queue="generate",
            bulk_queue="generate-bulk",
            complete_queue="complete",
            events_queue="events",
            generate_url="generate",
            complete_url="complete",
            service_account="tasks@example",
            audience="lookbook",
        )
        self.settler = Settler(
            documents=self.documents, bell=self.bell, patience=PATIENCE, clock=self.around.clock, rng=self.rng
        )

    def spawn(self, job: Job, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        def begin() -> asyncio.Task[T]:
            OWNER.set(self.tasks)
            JOB.set(job)
            return asyncio.get_running_loop().create_task(work)

        return contextvars.copy_context().run(begin)

    def kill(self) -> None:
        self.alive = False
        for task in list(self.tasks):
            task.cancel()


@dataclass(eq=False, slots=True, kw_only=True)
class Entry(Process):
    reception: Reception = field(init=False)
    changes: Changes = field(init=False)

    def __post_init__(self) -> None:
        Process.__post_init__(self)
        self.reception = Reception(
            documents=self.documents,
            bell=self.bell,
            default_model=MODEL,
            default_callback_url="",
            task_deadline=TASK_DEADLINE,
            limits=LIMITS,
            patience=PATIENCE,
            clock=self.around.clock,
            rng=self.rng,
        )
        self.changes = Changes(
            documents=self.documents,
            bell=self.bell,
            settler=self.settler,
            task_deadline=TASK_DEADLINE,
            limits=LIMITS,
            patience=PATIENCE,
            clock=self.around.clock,
            rng=self.rng,
        )


@dataclass(eq=False, slots=True, kw_only=True)
class Generate(Process):
    studio: Studio = field(init=False)

    def __post_init__(self) -> None:
        Process.__post_init__(self)
        around, clock = self.around, self.around.clock
        store: Any = around.store
        uploader = Uploader(store=store, clock=clock, rng=self.rng)
        preparer = Preparer(
            documents=self.documents,
            bell=self.bell,
            fetcher=cast(Any, Fetcher()),
            wechat=None,
            director=None,
            store=store,
            uploader=uploader,
            settler=self.settler,
            clock=clock,
            rng=self.rng,
            patience=PATIENCE,
        )
        desk = around.variant.desk(
            self.documents, clock=clock, rng=self.rng, patience=SLOT_WAIT, known_keys=frozenset(around.keys)
        )
        claims = Claims(
            documents=self.documents,
            bell=self.bell,
            desk=desk,
            store=store,
            lease=around.variant.lease,
            upload_time=UPLOAD_TIME,
            url_lifetime=URL_LIFETIME,
            patience=PATIENCE,
            clock=clock,
            rng=self.rng,
        )
        self.studio = Studio(
            documents=self.documents,
            bell=self.bell,
            preparer=preparer,
            claims=claims,
            setbacks=Setbacks(
                documents=self.documents,
                bell=self.bell,
                claims=claims,
                desk=desk,
                patience=PATIENCE,
                clock=clock,
            ),
            desk=desk,
            painter=cast(Any, around.painter),
            store=store,
            uploader=uploader,
            stash=Stash(
                documents=self.documents,
                bell=self.bell,
                claims=claims,
                store=store,
                uploader=uploader,
                upload_time=UPLOAD_TIME,
                url_lifetime=URL_LIFETIME,
                patience=PATIENCE,
                clock=clock,
            ),
            secrets={key: key for key in around.keys},
            style=PictureStyle(format="jpeg", quality=80, max_edge=256),
            encoder=around.stage.inline,
            call_time=CALL_TIME,
            upload_time=UPLOAD_TIME,
            url_lifetime=URL_LIFETIME,
            patience=PATIENCE,
            clock=clock,
        )

    async def handle(self, body: dict[str, Any]) -> str:
        return await self.studio.draw(
            ShotWake(
                task_id=body["taskId"],
                index=body["index"],
                version=body["version"],
                waits=body["waits"],
                attempts=body["attempts"],
                fresh=body["fresh"],
                bulk=body["bulk"],
                stashed=body["stashed"],
                trace_id="0" * 31 + "1",
            )
        )


@dataclass(eq=False, slots=True, kw_only=True)
class Complete(Process):
    desk: Desk = field(init=False)
    sweep: Sweep = field(init=False)

    def __post_init__(self) -> None:
        Process.__post_init__(self)
        self.desk = Desk(
            documents=self.documents,
            bell=self.bell,
            settler=self.settler,
            subscribers={**self.around.receivers, events.TAG_INDEXER: tag_indexer},
            clock=self.around.clock,
        )
        self.sweep = Sweep(
            documents=self.documents,
            bell=self.bell,
            settler=self.settler,
            patience=PATIENCE,
            clock=self.around.clock,
        )

    async def handle(self, body: dict[str, Any]) -> str:
        """As the function of that name does."""
        task_id = body["taskId"]
        if "subscriber" in body:
            try:
                await self.desk.deliver(task_id, body["eventIds"][0], body["subscriber"])
            except NotDelivered:
                raise ConnectionError("answered 500") from None
            return "delivered"
        if "events" in body:
            await self.desk.tell(task_id, [read_envelope(envelope) for envelope in body["events"]])
            return "told"
        if "eventIds" in body:
            await self.desk.look_and_tell(task_id, body["eventIds"])
            return "looked"
        return await self.settler.settle(task_id)
