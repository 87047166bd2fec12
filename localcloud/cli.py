"""`python -m localcloud up` and `run`: the whole system from one command, and nothing left of it after."""

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

from localcloud import environment
from localcloud.child import ChildDied
from localcloud.environment import MalformedEnvFile
from localcloud.progress import screen_for_terminal
from localcloud.run import RunFailed, Wish, run
from localcloud.supervisor import PROJECT_ROOT, Options, StartFailed, Supervisor

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
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
        "--state", type=Path, default=PROJECT_ROOT / ".local", help="日志目录 · where the logs go"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="启动并保持运行 · start everything and keep it running")
    run = commands.add_parser("run", help="生成九张样片 · make nine pictures of the sample garment")
    run.add_argument("--count", type=int, default=9, help="张数 · how many pictures")
    run.add_argument("--photo", help="服装照片地址 · address of a garment photo (https:// or cloud://)")
    run.add_argument("--out", type=Path, default=Path("out"), help="输出目录 · where the pictures go")
    return parser


def _options(asked: argparse.Namespace) -> Options:
    file = PROJECT_ROOT / ".env"
    from_file = environment.read_env_file(file.read_text("utf-8")) if file.exists() else {}
    keys = environment.equal_keys(asked.keys, 3) if asked.keys else environment.SEED_KEYS
    return Options(
        keys=keys,
        gemini_latency=asked.latency,
        gemini_jitter=asked.latency / 4,
        generate_workers=asked.workers,
        state=asked.state,
        given=environment.given_settings(from_file, os.environ),
    )


async def _supervised(supervisor: Supervisor, job: Callable[[], Awaitable[None]]) -> int:
    """Start everything, do the job while watching the children, stop everything."""
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
    photo = asked.photo or supervisor.addresses.sample
    with screen_for_terminal() as screen:
        await run(supervisor, Wish(photo=photo, count=asked.count), out=asked.out, screen=screen)


async def _up(supervisor: Supervisor, asked: argparse.Namespace) -> None:
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

  curl -i {where.entry}/tasks -H 'Content-Type: application/json' -d '{body}'

按 Ctrl-C 停止 · Ctrl-C stops everything""",
        flush=True,
    )
    await asyncio.Event().wait()


def _tell_what_is_real(supervisor: Supervisor) -> None:
    real = sorted(environment.real_services(supervisor.options.given))
    if real:
        print(f"使用真实服务 · used for real: {', '.join(real)}", flush=True)


def _refuse(reason: str) -> int:
    print(f"失败 · failed: {reason}", file=sys.stderr)
    return 1
