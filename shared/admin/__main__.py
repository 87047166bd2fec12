"""The operator's tool: `python -m shared.admin SUBJECT …`, with the settings of the environment."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

import httpx2
from google.api_core.exceptions import GoogleAPICallError

from shared import settings
from shared.adapters.firestore import Conflict
from shared.admin.doctor import Doctor
from shared.admin.explain import Explain
from shared.admin.keys import Keys
from shared.admin.letters import Letters
from shared.admin.report import Refused
from shared.bootstrap import build_bell, build_documents, build_settler, build_store
from shared.clock import SystemClock, system_random
from shared.flow.reopen import Changes
from shared.flow.submit import Limits
from shared.settings import (
    AdminSettings,
    BadSetting,
    CompleteSettings,
    EntrySettings,
    GenerateSettings,
    Settings,
)

Command = Callable[[argparse.Namespace], Awaitable[None]]


def _keys() -> Keys:
    loaded = settings.load(AdminSettings, os.environ)
    documents = build_documents(loaded.project, system_random())
    return Keys(settings=loaded, documents=documents, clock=SystemClock())


def _explain() -> Explain:
    loaded = settings.load(AdminSettings, os.environ)
    return Explain(documents=build_documents(loaded.project, system_random()), clock=SystemClock())


def _letters() -> Letters:
    loaded = settings.load(Settings, os.environ)
    clock, rng = SystemClock(), system_random()
    documents, bell = build_documents(loaded.project, rng), build_bell(loaded)
    changes = Changes(
        documents=documents,
        bell=bell,
        settler=build_settler(loaded, documents, bell, clock, rng),
        task_deadline=loaded.task_deadline,
        limits=Limits(),
        patience=loaded.patience,
        clock=clock,
        rng=rng,
    )
    return Letters(documents=documents, changes=changes, bell=bell, clock=clock)


def _doctor(asked: argparse.Namespace) -> Doctor:
    generate = settings.load(GenerateSettings, os.environ)
    return Doctor(
        entry=settings.load(EntrySettings, os.environ),
        generate=generate,
        complete=settings.load(CompleteSettings, os.environ),
        entry_url=asked.entry.rstrip("/"),
        documents=build_documents(generate.project, system_random()),
        bell=build_bell(generate),
        store=build_store(generate),
        http=httpx2.AsyncClient(timeout=20),
        clock=SystemClock(),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m shared.admin", description="The operator's tool.")
    subjects = parser.add_subparsers(required=True, metavar="SUBJECT")

    def subject(name: str, about: str) -> Callable[[str, Command, str | None], argparse.ArgumentParser]:
        commands = subjects.add_parser(name, help=about).add_subparsers(required=True, metavar="COMMAND")

        def command(word: str, run: Command, help_: str | None) -> argparse.ArgumentParser:
            made = commands.add_parser(word, help=help_, description=help_)
            made.set_defaults(run=run)
            return made

        return command

    # What a command needs is built when it runs: a client belongs to the loop it is made in.
    keys = subject("keys", "the pool of API keys")
    keys("sync", lambda asked: _keys().sync(asked), Keys.sync.__doc__)
    keys("list", lambda asked: _keys().list_keys(asked), Keys.list_keys.__doc__)
    disable = keys("disable", lambda asked: _keys().disable(asked), Keys.disable.__doc__)
    disable.add_argument("key")
    disable.add_argument("--reason", default="disabled by hand")
    keys("enable", lambda asked: _keys().enable(asked), Keys.enable.__doc__).add_argument("key")
    cool = keys("cool", lambda asked: _keys().cool(asked), Keys.cool.__doc__)
    cool.add_argument("key")
    cool.add_argument("--seconds", type=float, default=60)
    cool.add_argument("--model", help="default: GEMINI_MODEL")

    failed = subject("failed", "shots that failed")
    for made in (
        failed("list", lambda asked: _letters().list_failed(asked), Letters.list_failed.__doc__),
        failed("redrive", lambda asked: _letters().redrive_failed(asked), Letters.redrive_failed.__doc__),
    ):
        made.add_argument("task", nargs="?", help="default: all")

    calls = subject("callbacks", "callbacks that were not delivered")
    listed = calls("list", lambda asked: _letters().list_callbacks(asked), Letters.list_callbacks.__doc__)
    listed.add_argument("task", nargs="?", help="default: all")
    again = calls(
        "redrive", lambda asked: _letters().redrive_callbacks(asked), Letters.redrive_callbacks.__doc__
    )
    again.add_argument("task", nargs="?", help="default: all")
    again.add_argument("--event", help="only this one")

    doctor = subjects.add_parser("doctor", help=Doctor.__call__.__doc__)
    doctor.add_argument("--entry", default="", help="the address of the entry function")
    doctor.set_defaults(run=lambda asked: _doctor(asked)(asked))

    explain = subjects.add_parser("explain", help=Explain.__call__.__doc__)
    explain.add_argument("task")
    explain.add_argument("index", nargs="?", type=int)
    explain.set_defaults(run=lambda asked: _explain()(asked))
    return parser


async def _run(asked: argparse.Namespace) -> None:
    await asked.run(asked)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        asyncio.run(_run(asked))
    except BadSetting as error:
        print(f"lookbook: setting {error}", file=sys.stderr)
        return 4
    except (Refused, Conflict) as error:
        print(error, file=sys.stderr)
        return 1
    except GoogleAPICallError as error:
        print(f"Google Cloud answered {error.code}: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
