"""`python -m localcloud up` and `run`: the whole system from one command, and nothing left of it after.

`firestore` and `tasks` run one emulator alone, for other projects; `indexes` tells what production needs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localcloud import alone

if TYPE_CHECKING:
    from localcloud.supervisor import Options, Supervisor

_INTERRUPTED = 130
_FIRESTORE_PORT = 8080
_TASKS_PORT = 8123


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    if asked.command == "firestore":
        firestore = alone.start_firestore_alone(asked.host, asked.port, asked.data, asked.locking)
        return alone.serve(asked.command, firestore, on_a_pipe=asked.on_a_pipe)
    if asked.command == "tasks":
        tasks = alone.start_tasks_alone(asked.host, asked.port, asked.data, asked.jwks_port)
        return alone.serve(asked.command, tasks, on_a_pipe=asked.on_a_pipe)
    if asked.command == "indexes":
        return alone.print_indexes(asked.host, asked.port)
    return _system(asked)


def _system(asked: argparse.Namespace) -> int:
    # Imported here: an emulator alone starts without the drawing and the process keeping.
    from localcloud.environment import MalformedEnvFile
    from localcloud.supervisor import Supervisor

    try:
        options = _options(asked)
    except (MalformedEnvFile, OSError) as error:
        return _refuse(str(error))
    supervisor = Supervisor(options)
    job = _up if asked.command == "up" else _run
    try:
        return asyncio.run(_supervised(supervisor, lambda: job(supervisor, asked)))
    except KeyboardInterrupt:
        print("\n已停止 · stopped", file=sys.stderr)
        return _INTERRUPTED
    finally:
        supervisor.kill_now()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m localcloud", description="本地云 · the embedded cloud")
    parser.add_argument(
        "--latency", type=float, default=2.0, help="假 Gemini 每张用时（秒）· seconds per fake drawing"
    )
    parser.add_argument(
        "--keys", type=int, help="密钥个数，每个三槽 · number of fake keys with three slots each"
    )
    parser.add_argument("--workers", type=int, default=1, help="generate 进程数 · generate processes")
    parser.add_argument(
        "--state",
        type=Path,
        default=Path(__file__).parent.parent / ".local",
        help="日志目录 · where the logs go",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="启动并保持运行 · start everything and keep it running")
    _add_place(up, port=0, port_help="入口端口，0 为任意 · of the entry function; 0 takes a free one")
    run = commands.add_parser("run", help="生成九张样片 · make nine pictures of the sample garment")
    run.add_argument("--count", type=int, default=9, help="张数 · how many pictures")
    run.add_argument("--photo", help="服装照片地址 · address of a garment photo (https:// or cloud://)")
    run.add_argument("--out", type=Path, default=Path("out"), help="输出目录 · where the pictures go")
    run.set_defaults(host="127.0.0.1", port=0, data=None)
    firestore = commands.add_parser("firestore", help="只启动 Firestore · the embedded Firestore alone")
    _add_place(firestore, port=_FIRESTORE_PORT)
    firestore.add_argument("--locking", choices=("pessimistic", "optimistic"), default="pessimistic")
    tasks = commands.add_parser("tasks", help="只启动 Cloud Tasks · the embedded Cloud Tasks alone")
    _add_place(tasks, port=_TASKS_PORT)
    tasks.add_argument(
        "--jwks-port", type=int, default=0, help="公钥页端口 · of the page with the public key"
    )
    for server in (firestore, tasks):
        server.add_argument(
            "--on-a-pipe", action="store_true", help="stdin 关闭即停止 · stop when stdin is closed"
        )
    indexes = commands.add_parser(
        "indexes", help="列出查询所需的复合索引 · the composite indexes that the queries so far would need"
    )
    indexes.add_argument("--host", default="127.0.0.1")
    indexes.add_argument(
        "--port", type=int, default=0, help="默认取 FIRESTORE_EMULATOR_HOST · else from there"
    )
    return parser


def _add_place(
    parser: argparse.ArgumentParser, *, port: int, port_help: str = "0 为任意空闲端口 · 0 takes a free one"
) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=port, help=port_help)
    parser.add_argument(
        "--data", type=Path, help="数据目录，省略则存于内存 · keeps the data; without it, memory"
    )


def _options(asked: argparse.Namespace) -> Options:
    from localcloud import environment
    from localcloud.supervisor import PROJECT_ROOT, Options

    file = PROJECT_ROOT / ".env"
    from_file = environment.read_env_file(file.read_text("utf-8")) if file.exists() else {}
    keys = environment.equal_keys(asked.keys, 3) if asked.keys else environment.SEED_KEYS
    return Options(
        host=asked.host,
        port=asked.port,
        data=asked.data.resolve() if asked.data else None,
        keys=keys,
        gemini_latency=asked.latency,
        gemini_jitter=asked.latency / 4,
        generate_workers=asked.workers,
        state=asked.state,
        given=environment.given_settings(from_file, os.environ),
    )


async def _supervised(supervisor: Supervisor, job: Callable[[], Awaitable[None]]) -> int:
    """Start everything, do the job while watching the children, stop everything."""
    from localcloud.child import ChildDied
    from localcloud.run import RunFailed
    from localcloud.supervisor import StartFailed

    current = asyncio.current_task()
    if current is not None:
        for ending in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(ending, current.cancel)
    print("启动本地云 · starting the embedded cloud …", flush=True)
    try:
        async with supervisor:
            _tell_what_is_real(supervisor)
            working, watching = asyncio.ensure_future(job()), asyncio.ensure_future(supervisor.watch())
            try:
                done, _ = await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in (working, watching):
                    task.cancel()
                await asyncio.gather(working, watching, return_exceptions=True)
    except (StartFailed, ChildDied, RunFailed) as error:
        return _refuse(str(error))
    except asyncio.CancelledError:
        with contextlib.suppress(BrokenPipeError):
            print("\n已停止 · stopped", file=sys.stderr)
        return _INTERRUPTED
    return 0


async def _run(supervisor: Supervisor, asked: argparse.Namespace) -> None:
    from localcloud.progress import screen_for_terminal
    from localcloud.run import Wish, run

    photo = asked.photo or supervisor.addresses.sample
    with screen_for_terminal() as screen:
        await run(supervisor, Wish(photo=photo, count=asked.count), out=asked.out, screen=screen)


async def _up(supervisor: Supervisor, asked: argparse.Namespace) -> None:
    from localcloud.run import Wish

    where = supervisor.addresses
    body = json.dumps(Wish(photo=where.sample).body(), ensure_ascii=False)
    print(
        f"""
  入口 entry          {where.entry}      文档 docs {where.entry}/docs
  generate · complete {where.generate} · {where.complete}
  Firestore · Tasks   {where.firestore} · {where.tasks}
  Gemini              {where.gemini or "真实 real"}
  OpenAI              {where.openai or "真实 real"}
  COS                 {where.cos or "真实 real"}
  WeChat              {where.wechat}
  回调收件箱 inbox    {where.receiver}/inbox
  日志 logs           {supervisor.logs}

  FIRESTORE_EMULATOR_HOST={where.firestore}
  CLOUD_TASKS_EMULATOR_HOST={where.tasks}
  OIDC_JWKS_URL={where.jwks_url}

  curl -i {where.entry}/tasks -H 'Content-Type: application/json' -d '{body}'

按 Ctrl-C 停止 · Ctrl-C stops everything""",
        flush=True,
    )
    await asyncio.Event().wait()


def _tell_what_is_real(supervisor: Supervisor) -> None:
    from localcloud import environment

    real = sorted(environment.real_services(supervisor.options.given))
    if real:
        print(f"使用真实服务 · used for real: {', '.join(real)}", flush=True)


def _refuse(reason: str) -> int:
    print(f"失败 · failed: {reason}", file=sys.stderr)
    return 1
