"""Builds each function's world once, on first use inside the running loop, and hands it down as arguments.

functions-framework imports before it forks: a channel or a client made at import time belongs to the wrong process.
What only one function needs is imported only there; google-genai and openai cost half a second each.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

import httpx2

from shared import logs, settings
from shared.auth import Gate, OpenGate, RelayGate, SessionGate, TaskTokens
from shared.clock import Clock, SystemClock, system_random
from shared.settings import BadSetting, CompleteSettings, EntrySettings, GenerateSettings, Settings

if TYPE_CHECKING:
    from shared.adapters.cloud_tasks import Bell
    from shared.adapters.cos import CosStore
    from shared.adapters.firestore import Documents
    from shared.adapters.wechat import WeChat
    from shared.flow.complete import Desk
    from shared.flow.follow import Follower
    from shared.flow.generate import Studio
    from shared.flow.reopen import Changes
    from shared.flow.settle import Settler
    from shared.flow.submit import Reception
    from shared.flow.sweep import Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryApp:
    settings: EntrySettings
    documents: Documents
    reception: Reception
    changes: Changes
    follower: Follower
    gate: Gate
    wechat: WeChat | None
    clock: Clock
    rng: random.Random


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateApp:
    settings: GenerateSettings
    studio: Studio
    tokens: TaskTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteApp:
    settings: CompleteSettings
    desk: Desk
    settler: Settler
    sweep: Sweep
    tokens: TaskTokens


A = TypeVar("A")


class Once(Generic[A]):
    """The one `App` of a process, built when the first request needs it."""

    def __init__(self, build: Callable[[], A]) -> None:
        self._build = build
        self._built: A | None = None

    def __call__(self) -> A:
        if self._built is None:
            self._built = self._build()
        return self._built


def check_settings(function: str) -> None:
    """Stops the start with one line if the function that is being started lacks a setting."""
    if os.environ.get("FUNCTION_TARGET") != function:
        return
    try:
        loaded = settings.load(settings.FOR_TARGET[function], os.environ)
    except BadSetting as error:
        sys.stderr.write(f"lookbook: setting {error}\n")
        # 4 tells gunicorn's master, where there is one, that starting again is of no use.
        raise SystemExit(4) from None
    logs.set_up(loaded.log_level, loaded.project)


def build_entry() -> EntryApp:
    from shared.flow.follow import Follower
    from shared.flow.reopen import Changes
    from shared.flow.submit import Limits, Reception

    loaded = settings.load(EntrySettings, os.environ)
    clock, rng = SystemClock(), system_random()
    documents, bell = build_documents(loaded.project, rng), build_bell(loaded)
    limits = Limits(open_tasks=loaded.user_open_tasks, pictures_per_day=loaded.user_pictures_per_day)
    return EntryApp(
        settings=loaded,
        documents=documents,
        reception=Reception(
            documents=documents,
            bell=bell,
            default_model=loaded.gemini_model,
            default_callback_url=loaded.callback_url,
            task_deadline=loaded.task_deadline,
            limits=limits,
            patience=loaded.patience,
            clock=clock,
            rng=rng,
        ),
        changes=Changes(
            documents=documents,
            bell=bell,
            settler=build_settler(loaded, documents, bell, clock, rng),
            task_deadline=loaded.task_deadline,
            limits=limits,
            patience=loaded.patience,
            clock=clock,
            rng=rng,
        ),
        follower=Follower(documents=documents, clock=clock, most_streams=loaded.most_streams),
        gate=_gate(loaded, clock),
        wechat=_wechat(loaded, clock) if loaded.wechat_appid else None,
        clock=clock,
        rng=rng,
    )


def build_generate() -> GenerateApp:
    from shared.adapters.fetch import PublicFetcher
    from shared.adapters.gemini import GeminiPainter
    from shared.adapters.openai import PoseDirector
    from shared.flow.claim import Claims
    from shared.flow.generate import PictureStyle, Studio
    from shared.flow.prepare import Preparer
    from shared.flow.setback import Setbacks
    from shared.flow.slots import SlotDesk
    from shared.flow.stash import Stash
    from shared.flow.upload import Uploader

    loaded = settings.load(GenerateSettings, os.environ)
    clock, rng = SystemClock(), system_random()
    documents, bell = build_documents(loaded.project, rng), build_bell(loaded)
    store = build_store(loaded)
    uploader = Uploader(store=store, clock=clock, rng=rng)
    openai_key = loaded.openai_api_key.get_secret_value()
    preparer = Preparer(
        documents=documents,
        bell=bell,
        fetcher=PublicFetcher(
            allowed_hosts=loaded.source_hosts | _cloud_hosts(loaded), private_hosts=loaded.private_hosts
        ),
        wechat=_wechat(loaded, clock) if loaded.wechat_appid else None,
        director=PoseDirector(
            api_key=openai_key,
            base_url=loaded.openai_base_url or None,
            model=loaded.openai_model,
            timeout=timedelta(seconds=loaded.openai_timeout_seconds),
        )
        if openai_key
        else None,
        store=store,
        uploader=uploader,
        settler=build_settler(loaded, documents, bell, clock, rng),
        clock=clock,
        rng=rng,
        patience=loaded.patience,
    )
    secrets = {key.id: key.key.get_secret_value() for key in loaded.api_keys}
    desk = SlotDesk(
        documents,
        clock=clock,
        rng=rng,
        patience=timedelta(seconds=loaded.slot_wait_seconds),
        known_keys=frozenset(secrets),
    )
    upload_time = timedelta(seconds=loaded.upload_seconds)
    claims = Claims(
        documents=documents,
        bell=bell,
        desk=desk,
        store=store,
        lease=timedelta(seconds=loaded.lease_seconds),
        upload_time=upload_time,
        url_lifetime=loaded.url_lifetime,
        patience=loaded.patience,
        clock=clock,
        rng=rng,
    )
    studio = Studio(
        documents=documents,
        bell=bell,
        preparer=preparer,
        claims=claims,
        setbacks=Setbacks(
            documents=documents, bell=bell, claims=claims, desk=desk, patience=loaded.patience, clock=clock
        ),
        desk=desk,
        painter=GeminiPainter(
            base_url=loaded.gemini_base_url or None,
            timeout=timedelta(seconds=loaded.gemini_timeout_seconds),
        ),
        store=store,
        uploader=uploader,
        stash=Stash(
            documents=documents,
            bell=bell,
            claims=claims,
            store=store,
            uploader=uploader,
            upload_time=upload_time,
            url_lifetime=loaded.url_lifetime,
            patience=loaded.patience,
            clock=clock,
        ),
        secrets=secrets,
        style=PictureStyle(
            format=loaded.picture_format, quality=loaded.picture_quality, max_edge=loaded.picture_max_edge
        ),
        encoder=ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1), thread_name_prefix="encode"),
        call_time=timedelta(seconds=loaded.gemini_timeout_seconds),
        upload_time=upload_time,
        url_lifetime=loaded.url_lifetime,
        patience=loaded.patience,
        clock=clock,
    )
    return GenerateApp(settings=loaded, studio=studio, tokens=_tokens(loaded))


def build_complete() -> CompleteApp:
    from shared import events
    from shared.adapters.fetch import PublicFetcher
    from shared.adapters.webhook import parse_secret
    from shared.flow.complete import Desk
    from shared.flow.subscribers import Notification, analytics, tag_indexer
    from shared.flow.sweep import Sweep

    loaded = settings.load(CompleteSettings, os.environ)
    clock, rng = SystemClock(), system_random()
    documents, bell = build_documents(loaded.project, rng), build_bell(loaded)
    notification = Notification(
        fetcher=PublicFetcher(private_hosts=loaded.private_hosts),
        secret=parse_secret(loaded.callback_secret.get_secret_value()),
        timeout=timedelta(seconds=loaded.callback_timeout_seconds),
        clock=clock,
    )
    settler = build_settler(loaded, documents, bell, clock, rng)
    desk = Desk(
        documents=documents,
        bell=bell,
        settler=settler,
        subscribers={
            events.NOTIFICATION: notification,
            events.ANALYTICS: analytics,
            events.TAG_INDEXER: tag_indexer,
        },
        clock=clock,
    )
    sweep = Sweep(documents=documents, bell=bell, settler=settler, patience=loaded.patience, clock=clock)
    return CompleteApp(settings=loaded, desk=desk, settler=settler, sweep=sweep, tokens=_tokens(loaded))


def build_documents(project: str, rng: random.Random) -> Documents:
    from google.cloud import firestore

    from shared.adapters.firestore import Documents

    return Documents(firestore.AsyncClient(project=project), rng=rng)


def build_store(loaded: GenerateSettings) -> CosStore:
    from shared.adapters.cos import CosStore

    return CosStore(
        secret_id=loaded.cos_secret_id.get_secret_value(),
        secret_key=loaded.cos_secret_key.get_secret_value(),
        bucket=loaded.cos_bucket,
        region=loaded.cos_region,
        domain=loaded.cos_domain or None,
        scheme=loaded.cos_scheme,
    )


def build_bell(loaded: Settings) -> Bell:
    from shared.adapters.cloud_tasks import Bell, tasks_client

    return Bell(
        client=tasks_client(loaded.tasks_emulator),
        project=loaded.project,
        location=loaded.location,
        generate_queue=loaded.generate_queue,
        bulk_queue=loaded.bulk_queue,
        complete_queue=loaded.complete_queue,
        events_queue=loaded.events_queue,
        generate_url=loaded.generate_url,
        complete_url=loaded.complete_url,
        service_account=loaded.tasks_service_account,
        audience=loaded.tasks_audience,
    )


def build_settler(
    loaded: Settings, documents: Documents, bell: Bell, clock: Clock, rng: random.Random
) -> Settler:
    from shared.flow.settle import Settler

    return Settler(documents=documents, bell=bell, patience=loaded.patience, clock=clock, rng=rng)


def _tokens(loaded: Settings) -> TaskTokens:
    return TaskTokens(
        jwks_url=loaded.jwks_url,
        audience=loaded.tasks_audience,
        service_account=loaded.tasks_service_account,
    )


def _gate(loaded: EntrySettings, clock: Clock) -> Gate:
    if loaded.auth_mode == "wechat":
        return SessionGate(
            secret=loaded.session_secret.get_secret_value(),
            lifetime=timedelta(minutes=loaded.session_minutes),
            clock=clock,
        )
    if loaded.auth_mode == "relay":
        return RelayGate(secret=loaded.relay_secret.get_secret_value(), clock=clock)
    return OpenGate()


def _wechat(loaded: EntrySettings | GenerateSettings, clock: Clock) -> WeChat:
    from shared.adapters.wechat import WeChat

    return WeChat(
        appid=loaded.wechat_appid,
        secret=loaded.wechat_secret.get_secret_value(),
        env=loaded.wechat_env,
        base_url=loaded.wechat_base_url,
        http=httpx2.AsyncClient(timeout=10, trust_env=False),
        clock=clock,
    )


def _cloud_hosts(loaded: GenerateSettings) -> frozenset[str]:
    """With an allow-list of sources, the hosts of WeChat's own storage are on it if `cloud://` is in use."""
    return frozenset({"*.tcb.qcloud.la"}) if loaded.source_hosts and loaded.wechat_appid else frozenset()
