"""Prepares a task once: fetch the sources, look at them, choose poses, write the prompts.

One process does it, fenced by the task's version; the other shots of the task wait for it. Within a process they wait
on a lock, across processes by looking again now and then; a preparer that dies is replaced when its time is up.
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from shared import events, images
from shared.adapters.cloud_tasks import Bell
from shared.adapters.cos import CosStore, NoSuchObject
from shared.adapters.fetch import PublicFetcher
from shared.adapters.firestore import Conflict, Documents, Version
from shared.adapters.firestore_tasks import create_event, fail_shot, shots_of, task_path, update_task
from shared.adapters.openai import PoseDirector
from shared.adapters.wechat import WeChat
from shared.clock import Clock
from shared.errors import LookbookError, SourceRefused, SourceUnavailable, Terminal
from shared.events import Event
from shared.flow.settle import Settler
from shared.flow.upload import Uploader
from shared.ids import new_event_id, new_token
from shared.images import SourcePhoto
from shared.logs import Log
from shared.prompts.compose import compose
from shared.prompts.director import Actions, actions_without_director, director_messages, read_actions
from shared.task import Patience, Plan, PlanState, Source, Status, Task

MOST_ATTEMPTS: Final = 4
_SHARE: Final = 5 / 6
"""How much of its time a preparation may use, so that it is over before another process begins again."""
_LOOK_AGAIN: Final = (0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0)
"""Seconds between looks at a task that another process prepares."""
_KEEP_PREPARED: Final = 32
_MOST_PIXELS: Final = 40_000_000
_LONGEST_EDGE: Final = 1536
_BACKOFF: Final = timedelta(seconds=5)

log = Log("prepare")


class TaskIsOver(Exception):
    """The task is final, or gone: its shots have nothing left to do."""


class NotYet(Exception):
    """The task can't be worked on before `at`."""

    def __init__(self, at: datetime) -> None:
        super().__init__(at.isoformat())
        self.at = at


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A task that is ready to be drawn, with its photos in memory."""

    task: Task
    photos: tuple[SourcePhoto, ...]

    def prompt(self, index: int) -> str:
        return str(self.task.prompts["final"][index])


class Preparer:
    def __init__(
        self,
        *,
        documents: Documents,
        bell: Bell,
        fetcher: PublicFetcher,
        wechat: WeChat | None,
        director: PoseDirector | None,
        store: CosStore,
        uploader: Uploader,
        settler: Settler,
        clock: Clock,
        rng: random.Random,
        patience: Patience,
    ) -> None:
        self._documents = documents
        self._bell = bell
        self._fetcher = fetcher
        self._wechat = wechat
        self._director = director
        self._store = store
        self._uploader = uploader
        self._settler = settler
        self._clock = clock
        self._rng = rng
        self._patience = patience
        self._prepared: OrderedDict[str, Prepared] = OrderedDict()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def ready(self, task_id: str) -> Prepared:
        lock = self._locks.setdefault(task_id, asyncio.Lock())
        async with lock:
            known = self._prepared.get(task_id)
            if known is None or known.task.deadline <= self._clock.now():
                # A task that was opened again has a new deadline.
                known = await self._find_or_prepare(task_id)
                self._prepared[task_id] = known
                while len(self._prepared) > _KEEP_PREPARED:
                    self._prepared.popitem(last=False)
            else:
                self._prepared.move_to_end(task_id)
            return known

    async def _find_or_prepare(self, task_id: str) -> Prepared:
        looks = iter(_LOOK_AGAIN)
        while True:
            (document,) = await self._documents.get(task_path(task_id))
            if document is None:
                raise TaskIsOver(task_id)
            task = Task.from_document(document.fields)
            if _is_over(task):
                raise TaskIsOver(task_id)
            now = self._clock.now()
            if task.plan.state is PlanState.READY:
                return Prepared(task=task, photos=await self._load(task, document.version))
            if task.plan.until is None or task.plan.until <= now:
                claimed = await self._claim(task, document.version)
                if claimed is not None:
                    return await self._prepare(*claimed)
                continue
            if task.plan.state is PlanState.NONE:
                raise NotYet(task.plan.until)
            wait = next(looks, None)
            if wait is None:
                raise NotYet(now + timedelta(seconds=self._rng.uniform(3, 6)))
            await self._clock.sleep(wait)

    async def _claim(self, task: Task, version: Version) -> tuple[Task, Version, str] | None:
        """None when somebody else was quicker."""
        now = self._clock.now()
        token = new_token(self._rng)
        fields: dict[str, Any] = {
            "status": Status.PROCESSING.value,
            "plan": {
                "state": PlanState.PREPARING.value,
                "token": token,
                "until": now + self._patience.preparation,
                "attempts": task.plan.attempts + 1,
            },
            "updatedAt": now,
        }
        if task.marks["processingStartedAt"] is None:
            fields["processingStartedAt"] = now
        try:
            (claimed,) = await self._documents.commit(update_task(task.task_id, fields, version))
        except Conflict:
            (document,) = await self._documents.get(task_path(task.task_id))
            if document is None or document.fields["plan"].get("token") != token:
                return None
            claimed = document.version
        return task, claimed, token

    async def _prepare(self, task: Task, version: Version, token: str) -> Prepared:
        attempt = task.plan.attempts + 1
        try:
            async with asyncio.timeout((self._patience.preparation * _SHARE).total_seconds()):
                photos, (actions, director) = await asyncio.gather(self._fetch_all(task), self._direct(task))
                sources = await self._keep_all(task, photos)
        except Terminal as error:
            await self._fail(task, version, error)
            raise TaskIsOver(task.task_id) from error
        except (LookbookError, TimeoutError) as error:
            cause = error if isinstance(error, LookbookError) else LookbookError("preparation took too long")
            if attempt >= MOST_ATTEMPTS:
                await self._fail(task, version, cause)
                raise TaskIsOver(task.task_id) from error
            raise NotYet(await self._postpone(task, version, cause, attempt)) from error

        prompts = compose(task.mode, task.params, task.prompt, actions.actions)
        now = self._clock.now()
        fields: dict[str, Any] = {
            "plan": {
                "state": PlanState.READY.value,
                "token": token,
                "attempts": attempt,
                "director": director,
            },
            "prompts": {
                "base": prompts.base,
                "frontend": prompts.frontend,
                "actions": list(prompts.actions),
                "final": list(prompts.final),
            },
            "sources": [source.to_document() for source in sources],
            "promptGeneratedAt": now,
            "updatedAt": now,
        }
        told = list(self._tell_of(task, sources, now))
        events_written = [create_event(event, patience=self._patience) for event in told]
        while True:
            try:
                await self._documents.commit(update_task(task.task_id, fields, version), *events_written)
            except Conflict:
                (document,) = await self._documents.get(task_path(task.task_id))
                if document is None or _is_over(found := Task.from_document(document.fields)):
                    raise TaskIsOver(task.task_id) from None
                if found.plan.token != token:
                    raise NotYet(now + timedelta(seconds=1)) from None
                if found.plan.state is not PlanState.READY:
                    # Ours still, and not the plan has changed: the sweep looked at the task, or somebody did.
                    version = document.version
                    continue
            break
        await self._bell.ring([self._bell.events(task.task_id, told)])
        log.info(
            "task.prepared",
            task_id=task.task_id,
            sources=len(sources),
            shots=task.total,
            director=director,
            repaired=actions.repaired,
        )
        ready = replace(
            task,
            status=Status.PROCESSING,
            plan=Plan(state=PlanState.READY, token=token, attempts=attempt, director=director),
            prompts=fields["prompts"],
            sources=tuple(sources),
            marks={**task.marks, "promptGeneratedAt": now},
        )
        return Prepared(task=ready, photos=tuple(photos))

    async def _fetch_all(self, task: Task) -> list[SourcePhoto]:
        cloud_files = [url for url in task.images if url.startswith("cloud://")]
        addresses: dict[str, str] = {}
        if cloud_files:
            if self._wechat is None:
                raise SourceRefused("cloud:// sources need WECHAT_APPID and WECHAT_SECRET to be set")
            addresses = await self._wechat.download_urls(cloud_files)
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(_outcome(self._fetch(addresses.get(url, url)))) for url in task.images]
        photos: list[SourcePhoto] = []
        for number, job in enumerate(jobs, start=1):
            photo = job.result()
            if isinstance(photo, LookbookError):
                # The same type, so that its code stays; the user is told which photo it was.
                raise type(photo)(f"source photo {number}: {photo.message}") from photo
            photos.append(photo)
        return photos

    async def _fetch(self, url: str) -> SourcePhoto:
        data = await self._fetcher.fetch(url)
        return await asyncio.to_thread(
            images.normalise, data, max_pixels=_MOST_PIXELS, max_edge=_LONGEST_EDGE
        )

    async def _keep_all(self, task: Task, photos: Sequence[SourcePhoto]) -> list[Source]:
        async def keep(number: int, photo: SourcePhoto) -> Source:
            key = f"sources/{task.task_id}/{number}-{photo.sha256[:16]}.jpg"
            _, analysis = await asyncio.gather(
                self._uploader.put(key, photo.data, photo.mimeType),
                asyncio.to_thread(images.analyse, photo.data),
            )
            return Source(
                url=task.images[number],
                sha256=photo.sha256,
                mime_type=photo.mimeType,
                width=photo.width,
                height=photo.height,
                cos_key=key,
                analysis=asdict(analysis),
            )

        return list(await asyncio.gather(*(keep(number, photo) for number, photo in enumerate(photos))))

    async def _load(self, task: Task, version: Version) -> tuple[SourcePhoto, ...]:
        async def load(source: Source) -> SourcePhoto:
            return SourcePhoto(
                data=await self._store.get(source.cos_key),
                mimeType=source.mime_type,
                width=source.width,
                height=source.height,
                sha256=source.sha256,
            )

        try:
            return tuple(await asyncio.gather(*(load(source) for source in task.sources)))
        except NoSuchObject as error:
            await self._fail(task, version, SourceUnavailable("a stored source photo is gone"))
            raise TaskIsOver(task.task_id) from error
        except LookbookError as error:
            log.warning("sources.unreadable", task_id=task.task_id, code=error.code)
            raise NotYet(self._clock.now() + _BACKOFF) from error

    async def _direct(self, task: Task) -> tuple[Actions, str]:
        """Poses from the language model; the library's when it has none to give. Never stops a task."""
        if self._director is not None:
            messages = director_messages(scene=task.params.scene, style=task.params.style, count=task.total)
            try:
                answer = await self._director.direct(messages, task.total)
            except LookbookError as error:
                log.warning("director.unavailable", task_id=task.task_id, code=error.code)
            else:
                actions = read_actions(answer, task.total, rng=self._rng)
                if actions.repaired < task.total:
                    return actions, "repaired" if actions.repaired or actions.dropped else "llm"
        return actions_without_director(task.total, rng=self._rng), "library"

    def _tell_of(self, task: Task, sources: Sequence[Source], now: datetime) -> list[Event]:
        def event(event_type: str, payload: dict[str, Any]) -> Event:
            return Event(
                event_id=new_event_id(self._rng),
                event_type=event_type,
                task_id=task.task_id,
                trace_id=task.trace_id,
                timestamp=now,
                source="generate",
                payload=payload,
            )

        told: list[Event] = []
        for number, source in enumerate(sources):
            named = {"source": number, "sha256": source.sha256}
            size = {"mimeType": source.mime_type, "width": source.width, "height": source.height}
            told.append(event(events.IMAGE_DOWNLOADED, named))
            told.append(event(events.IMAGE_METADATA_EXTRACTED, named | size))
            told.append(event(events.IMAGE_ANALYZED, named | {"analysis": source.analysis}))
        return told

    async def _postpone(self, task: Task, version: Version, error: LookbookError, attempt: int) -> datetime:
        at = self._clock.now() + _BACKOFF * attempt
        log.warning("task.preparation_failed", task_id=task.task_id, code=error.code, attempt=attempt)
        plan = {"state": PlanState.NONE.value, "until": at, "attempts": attempt}
        try:
            await self._documents.commit(
                update_task(task.task_id, {"plan": plan, "updatedAt": self._clock.now()}, version)
            )
        except Conflict:
            log.info("task.preparation_superseded", task_id=task.task_id)
        return at

    async def _fail(self, task: Task, version: Version, error: LookbookError) -> None:
        """Without its sources no shot can be drawn: all that are open end here, and the task with them."""
        now = self._clock.now()
        record = {"code": error.code, "message": error.message, "timestamp": now, "retriable": False}
        plan = {"state": PlanState.FAILED.value, "attempts": task.plan.attempts + 1}
        # Should this process die before the last step, the next sweep takes it.
        fields = {"plan": plan, "errors": [record], "checkAt": now, "updatedAt": now}
        found = await shots_of(self._documents, task.task_id)
        open_shots = [shot for shot in found if not Status(shot.fields["status"]).is_final]
        try:
            await self._documents.commit(
                update_task(task.task_id, fields, version),
                *(fail_shot(task.task_id, int(shot.id), shot.version, error=record) for shot in open_shots),
            )
        except Conflict:
            log.info("task.preparation_superseded", task_id=task.task_id)
            return
        log.warning("task.not_prepared", task_id=task.task_id, code=error.code, reason=error.message)
        await self._settler.settle(task.task_id)


def _is_over(task: Task) -> bool:
    return task.status.is_final or task.cancelled_at is not None


async def _outcome(job: Any) -> SourcePhoto | LookbookError:
    """A failure as a value, so that one broken photo doesn't cancel the report on the others."""
    try:
        photo: SourcePhoto = await job
    except LookbookError as error:
        return error
    return photo
