"""Which servers the embedded cloud has, with what arguments each starts, and where it can then be reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from localcloud import environment
from localcloud.environment import Key
from localcloud.faults import Faults
from shared.clock import Clock

ServiceName = Literal["firestore", "tasks", "cos", "gemini", "openai", "wechat", "receiver"]
Arguments = dict[str, Any]


class Counting(Protocol):
    """A server's own bookkeeping."""

    def snapshot(self) -> dict[str, dict[str, int]]: ...
    def reset(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running server of the cloud."""

    addresses: dict[str, str]
    stop: Callable[[], Awaitable[None]]
    counts: Counting | None = None
    """None: it keeps none of its own."""


def services_to_start(
    *,
    keys: Sequence[Key],
    latency: float,
    jitter: float,
    given: Mapping[str, str],
    data: Path | None = None,
) -> dict[ServiceName, Arguments]:
    """The arguments of every server that is needed: what is used for real has no fake.

    `given`: the person's own settings; a fake knows the secrets that the functions will be told.
    """
    real = environment.real_services(given)
    wanted: dict[ServiceName, Arguments] = {
        "firestore": {"data": str(data / "firestore")} if data else {},
        "tasks": {"data": str(data / "tasks")} if data else {},
    }
    if "cos" not in real:
        wanted["cos"] = {
            "bucket": environment.BUCKET,
            "secret_id": environment.COS_SECRET_ID,
            "secret_key": environment.COS_SECRET_KEY,
        }
    if "gemini" not in real:
        told = [
            {
                "key": key.secret,
                "id": key.id,
                "max_concurrent": key.max_concurrent,
                "project": key.quota_domain,
            }
            for key in keys
        ]
        wanted["gemini"] = {"keys": told, "latency": latency, "jitter": jitter}
    if "openai" not in real:
        wanted["openai"] = {"api_key": environment.OPENAI_KEY}
    wanted["wechat"] = {
        "appid": given.get("WECHAT_APPID", environment.WECHAT_APPID),
        "secret": given.get("WECHAT_SECRET", environment.WECHAT_SECRET),
        "env": given.get("WECHAT_ENV", environment.WECHAT_ENV),
    }
    wanted["receiver"] = {"secret": given.get("CALLBACK_SECRET", environment.CALLBACK_SECRET)}
    return wanted


async def start_service(
    name: ServiceName, arguments: Mapping[str, Any], *, host: str, clock: Clock, faults: Faults
) -> Service:
    return await _STARTERS[name](arguments, host, clock, faults)


# Each starter imports its server itself: the database's process needs no Pillow, the providers' no gRPC.


async def _firestore(arguments: Mapping[str, Any], host: str, clock: Clock, faults: Faults) -> Service:
    from localcloud.firestore import start_firestore

    running = await start_firestore(host=host, clock=clock, faults=faults, **_with_path(arguments))
    return Service(
        addresses={"firestore": f"{host}:{running.port}"}, stop=running.stop, counts=running.counts
    )


async def _tasks(arguments: Mapping[str, Any], host: str, clock: Clock, faults: Faults) -> Service:
    from localcloud.tasks import start_tasks

    running = await start_tasks(host=host, clock=clock, faults=faults, **_with_path(arguments))
    addresses = {"tasks": f"{host}:{running.port}", "jwks": running.jwks_url}
    return Service(addresses=addresses, stop=running.stop, counts=running.counts)


def _with_path(arguments: Mapping[str, Any]) -> Arguments:
    """Arguments come as JSON, which has no paths."""
    return {**arguments, "data": Path(arguments["data"])} if "data" in arguments else dict(arguments)


async def _cos(arguments: Mapping[str, Any], host: str, clock: Clock, faults: Faults) -> Service:
    from localcloud.cos import start_cos

    running = await start_cos(host=host, clock=clock, faults=faults, **arguments)
    return Service(addresses={"cos": running.url}, stop=running.stop)


async def _gemini(arguments: Mapping[str, Any], host: str, clock: Clock, faults: Faults) -> Service:
    from localcloud.providers.gemini import start_gemini
    from localcloud.providers.gemini_engine import KeySpec

    keys = [KeySpec(**key) for key in arguments["keys"]]
    running = await start_gemini(
        host=host,
        clock=clock,
        faults=faults,
        keys=keys,
        latency=arguments["latency"],
        jitter=arguments["jitter"],
    )
    return Service(addresses={"gemini": running.url}, stop=running.stop)


async def _openai(arguments: Mapping[str, Any], host: str, clock: Clock, faults: Faults) -> Service:
    from localcloud.providers.openai import start_openai

    running = await start_openai(host=host, clock=clock, faults=faults, **arguments)
    return Service(addresses={"openai": running.url}, stop=running.stop)


async def _wechat(arguments: Mapping[str, Any], host: str, clock: Clock, faults: Faults) -> Service:
    from localcloud.providers.wechat import start_wechat

    running = await start_wechat(host=host, clock=clock, faults=faults, **arguments)
    return Service(addresses={"wechat": running.url, "sample": running.sample_file_id}, stop=running.stop)


async def _receiver(arguments: Mapping[str, Any], host: str, clock: Clock, faults: Faults) -> Service:
    from localcloud.receiver import start_receiver

    running = await start_receiver(host=host, clock=clock, faults=faults, **arguments)
    addresses = {"receiver": running.url, "callback": running.callback_url}
    return Service(addresses=addresses, stop=running.stop)


_STARTERS: Mapping[ServiceName, Callable[[Mapping[str, Any], str, Clock, Faults], Awaitable[Service]]] = {
    "firestore": _firestore,
    "tasks": _tasks,
    "cos": _cos,
    "gemini": _gemini,
    "openai": _openai,
    "wechat": _wechat,
    "receiver": _receiver,
}
