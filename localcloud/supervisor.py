"""Starts the embedded cloud and the three functions, watches over them, and leaves nothing behind.

Firestore and Cloud Tasks live in one process, the providers in another, so that drawing never stalls the
database; each function is a process of its own, started the way the buildpack starts it. Nothing is restarted
silently: a child that ends by itself is an error, told with the last lines of its log.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, get_args

import httpx2
from google.api_core.exceptions import GoogleAPICallError

from localcloud import environment
from localcloud.child import Child, ReservedPort
from localcloud.control import Cloud, CloudConfig, ServiceControl, start_cloud
from localcloud.environment import Addresses, Key
from localcloud.faults import Rule
from localcloud.queues import call_sweep, create_queues
from localcloud.services import ServiceName, services_to_start
from shared.clock import SystemClock

Function = Literal["entry", "generate", "complete"]
FUNCTIONS: tuple[Function, ...] = get_args(Function)
DATABASE: frozenset[ServiceName] = frozenset({"firestore", "tasks"})
"""The services that share the first process; the others share the second."""

PROJECT_ROOT = Path(__file__).resolve().parent.parent
_STARTUP_SECONDS = 60


class StartFailed(Exception):
    """The system did not come up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be started, and how."""

    host: str = "127.0.0.1"
    port: int = 0
    """Of the entry function; 0 takes a free one."""
    data: Path | None = None
    """Where Firestore and Cloud Tasks keep what they hold; none: in memory."""
    keys: Sequence[Key] = environment.SEED_KEYS
    gemini_latency: float = 2.0
    """Seconds the fake Gemini takes to draw."""
    gemini_jitter: float = 0.0
    generate_workers: int = 1
    in_process: bool = False
    """The cloud runs in the caller's loop instead of processes of its own."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the person: what has real credentials in here is used for real."""
    extra: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings that come before everything else."""
    faults: Mapping[ServiceName, Sequence[Rule]] = field(default_factory=dict)
    state: Path = PROJECT_ROOT / ".local"
    source: Path = PROJECT_ROOT
    """The directory of the `main.py` that has the functions."""
    sweep_seconds: float = 60
    """How often the scheduler's stand-in calls the sweep; production: every minute."""
    functions: Sequence[Function] = FUNCTIONS
    """Which functions run at first; the others are started later with `restart`."""


class Supervisor:
    """`async with Supervisor(options) as system:` and the whole system runs."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.addresses: Addresses
        self.settings: dict[str, str]
        """The settings of the functions."""
        self.http = httpx2.AsyncClient(trust_env=False, timeout=30)
        self._children: dict[str, Child] = {}
        self._meant_to_end: set[str] = set()
        self._clouds: list[Cloud] = []
        self._controls: dict[ServiceName, str] = {}
        self._ports: dict[Function, ReservedPort] = {}
        self._changed = asyncio.Event()
        self._scheduler: asyncio.Task[None] | None = None

    # -- life

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_STARTUP_SECONDS):
                await self._start()
        except TimeoutError as error:
            await self.stop()
            raise StartFailed(
                f"{_STARTUP_SECONDS} 秒内未能启动 · not up within {_STARTUP_SECONDS} s; 日志 logs {self.logs}"
            ) from error
        except BaseExceptionGroup as group:
            await self.stop()
            # Whatever failed first made the others fail.
            raise group.exceptions[0] from group
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End everything; may be called again."""
        if self._scheduler is not None:
            self._scheduler.cancel()
            await asyncio.gather(self._scheduler, return_exceptions=True)
        self._meant_to_end.update(self._children)
        functions = [child for name, child in self._children.items() if name in FUNCTIONS]
        clouds = [child for name, child in self._children.items() if name not in FUNCTIONS]
        # The functions first: nobody then sees the database disappear.
        await asyncio.gather(*(child.stop() for child in functions))
        await asyncio.gather(*(child.stop() for child in clouds))
        await asyncio.gather(*(cloud.stop() for cloud in self._clouds))
        self._clouds.clear()
        for port in self._ports.values():
            port.release()
        await self.http.aclose()

    def kill_now(self) -> None:
        """The last resort, outside any loop: kill every child's group."""
        for child in self._children.values():
            child.kill_now()

    async def watch(self) -> None:
        """Never returns; raises ChildDied when a child ends that nobody ended."""
        while True:
            self._changed.clear()
            watched = {child.exited: name for name, child in self._children.items() if child.is_running}
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({*watched, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            self.check()

    def check(self) -> None:
        """Raise ChildDied if a child has ended that nobody ended."""
        for name, child in self._children.items():
            if not child.is_running and name not in self._meant_to_end:
                raise child.died()

    # -- what runs

    @property
    def urls(self) -> dict[Function, str]:
        return {name: port.url for name, port in self._ports.items()}

    @property
    def pids(self) -> dict[str, int]:
        """The leading process of every running child, by name."""
        return {name: child.pid for name, child in self._children.items() if child.is_running}

    @property
    def logs(self) -> Path:
        return self.options.state / "logs"

    @property
    def services(self) -> list[ServiceName]:
        """The embedded services that run."""
        return list(self._controls)

    def service(self, name: ServiceName) -> ServiceControl:
        """The faults and counts of one embedded service."""
        return ServiceControl(self.http, self._controls[name], name)

    async def kill(self, function: Function) -> None:
        """kill -9 of a function and all its workers, as when an instance is lost."""
        self._meant_to_end.add(function)
        await self._children[function].stop()

    async def restart(self, function: Function) -> None:
        """Start a function (again), on the port it always had."""
        if function in self._children:
            await self.kill(function)
        await self._start_function(function)
        await self._until_ready(function)

    async def run_admin(self, *arguments: str) -> str:
        """`python -m shared.admin …` against this system; what it printed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "shared.admin",
            *arguments,
            cwd=PROJECT_ROOT,
            env=environment.process_environment(self.settings, os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        text = output.decode("utf-8", "replace").strip()
        if process.returncode != 0:
            raise StartFailed(f"python -m shared.admin {' '.join(arguments)}:\n{text}")
        return text

    # -- starting

    async def _start(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        for log in self.logs.glob("*.log"):
            log.unlink(missing_ok=True)
        self._ports = {
            name: ReservedPort(self.options.host, self.options.port if name == "entry" else 0)
            for name in FUNCTIONS
        }
        found = await self._start_clouds()
        self.addresses = Addresses(
            firestore=found["firestore"],
            tasks=found["tasks"],
            jwks_url=found["jwks"],
            wechat=found["wechat"],
            receiver=found["receiver"],
            callback_url=found["callback"],
            sample=found["sample"],
            gemini=found.get("gemini"),
            openai=found.get("openai"),
            cos=found.get("cos"),
            **self.urls,
        )
        self.settings = environment.settings_for(
            self.addresses, keys=self.options.keys, given=self.options.given, extra=self.options.extra
        )
        slots = environment.slots_of(self.settings.get("GEMINI_API_KEYS", ""))
        for name in self.options.functions:
            await self._start_function(name)
        async with asyncio.TaskGroup() as group:
            group.create_task(create_queues(self.addresses.tasks, environment.local_queues(slots)))
            group.create_task(self.run_admin("keys", "sync"))
            for name in self.options.functions:
                group.create_task(self._until_ready(name))
        self._scheduler = asyncio.create_task(self._schedule())

    async def _schedule(self) -> None:
        while True:
            await asyncio.sleep(self.options.sweep_seconds)
            try:
                await call_sweep(self.addresses.tasks, self.addresses.complete)
            except GoogleAPICallError as error:
                # As with the real scheduler: the next tick tries again.
                with (self.logs / "scheduler.log").open("a") as log:
                    log.write(f"{error}\n")

    async def _start_clouds(self) -> dict[str, str]:
        wanted = services_to_start(
            keys=self.options.keys,
            latency=self.options.gemini_latency,
            jitter=self.options.gemini_jitter,
            given={**self.options.given, **self.options.extra},
            data=self.options.data,
        )
        parts: dict[str, list[ServiceName]] = {"database": [], "providers": []}
        for name in wanted:
            parts["database" if name in DATABASE else "providers"].append(name)
        configs = {
            part: CloudConfig(
                host=self.options.host,
                services={name: wanted[name] for name in names},
                faults={name: list(self.options.faults.get(name, ())) for name in names},
            )
            for part, names in parts.items()
        }
        start = self._start_cloud_here if self.options.in_process else self._start_cloud_apart
        async with asyncio.TaskGroup() as group:
            starting = [group.create_task(start(part, config)) for part, config in configs.items()]
        return {name: address for started in starting for name, address in started.result().items()}

    async def _start_cloud_here(self, part: str, config: CloudConfig) -> dict[str, str]:
        cloud = await start_cloud(config, clock=SystemClock())
        self._clouds.append(cloud)
        return self._noted(config, cloud.addresses)

    async def _start_cloud_apart(self, part: str, config: CloudConfig) -> dict[str, str]:
        child = await Child.start(
            part,
            [sys.executable, "-m", "localcloud.control"],
            env=environment.process_environment({}, os.environ),
            cwd=PROJECT_ROOT,
            log=self.logs / f"{part}.log",
            piped=True,
        )
        self._add(child)
        await child.tell(config.model_dump_json().encode())
        return self._noted(config, json.loads(await child.hear()))

    def _noted(self, config: CloudConfig, addresses: dict[str, str]) -> dict[str, str]:
        self._controls |= dict.fromkeys(config.services, addresses["control"])
        return addresses

    async def _start_function(self, name: Function) -> None:
        port = self._ports[name]
        port.hand_over()
        workers = self.options.generate_workers if name == "generate" else 1
        more = {
            "FUNCTION_TARGET": name,
            "HOST": port.host,
            "PORT": str(port.port),
            "WORKERS": str(workers),
            "PYTHONUNBUFFERED": "1",
        }
        child = await Child.start(
            name,
            [sys.executable, "-m", "functions_framework", "--target", name, "--port", str(port.port)],
            env=environment.process_environment(self.settings, os.environ, more),
            cwd=self.options.source,
            log=self.logs / f"{name}.log",
        )
        self._add(child)

    def _add(self, child: Child) -> None:
        self._children[child.name] = child
        self._meant_to_end.discard(child.name)
        self._changed.set()

    async def _until_ready(self, name: Function) -> None:
        """Wait until it answers over HTTP."""
        while True:
            self.check()
            try:
                answer = await self.http.get(f"{self._ports[name].url}/health", timeout=5)
            except httpx2.TransportError:
                await asyncio.sleep(0.05)
                continue
            if answer.status_code >= 500:
                raise StartFailed(
                    f"{name} 回答 {answer.status_code} · {name} answers {answer.status_code}: {answer.text}"
                )
            return
