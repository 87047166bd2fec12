"""The first thing a stranger sees: nine pictures of the sample garment, made while they watch."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from localcloud.progress import Screen, TaskView, read_task
from localcloud.supervisor import Supervisor
from shared.images import contact_sheet

POLL_SECONDS = 0.35
LAST_CALLBACK_SECONDS = 5.0
_SUFFIXES = {"image/webp": "webp", "image/jpeg": "jpg", "image/png": "png"}


class RunFailed(Exception):
    """The run did not end with all its pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for."""

    photo: str
    count: int = 9
    scene: str = "商业摄影"
    style: str = "现代简约"

    def body(self) -> dict[str, Any]:
        return {
            "mode": "photo_set",
            "images": [self.photo],
            "params": {"scene": self.scene, "style": self.style, "count": self.count},
        }


async def run(system: Supervisor, wish: Wish, *, out: Path, screen: Screen) -> None:
    """Submit, watch to the end, save the pictures; RunFailed with the reason if there are not all of them."""
    http, entry = system.http, system.urls["entry"]
    answer = await http.post(f"{entry}/tasks", json=wish.body())
    if answer.status_code != 202:
        raise RunFailed(f"提交被拒绝 · refused with {answer.status_code}: {answer.text}")
    task_id: str = answer.json()["taskId"]
    screen.say(f"任务 task {task_id} · {wish.count} 张 {wish.scene} · {wish.style}")

    callbacks = asyncio.create_task(_tell_callbacks(http, system.addresses.receiver, task_id, screen))
    try:
        task = await _watch_task(http, f"{entry}/tasks/{task_id}", screen)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(callbacks), LAST_CALLBACK_SECONDS)
    finally:
        callbacks.cancel()
        await asyncio.gather(callbacks, return_exceptions=True)

    saved = await _save_pictures(http, task, out)
    if saved:
        sheet = out / "contact-sheet.jpg"
        pictures = [path.read_bytes() for path in saved]
        sheet.write_bytes(await asyncio.to_thread(contact_sheet, pictures))
        screen.say(f"已保存 {len(saved)} 张图片 · {len(saved)} pictures in {out}")
        screen.say(f"联系表 · contact sheet {sheet}")
    if task["status"] != "completed":
        raise RunFailed(
            f"任务以 {task['status']} 结束 · the task ended as {task['status']}: {_reasons(task)}"
        )


async def _watch_task(http: httpx2.AsyncClient, url: str, screen: Screen) -> dict[str, Any]:
    tag: str | None = None
    while True:
        answer = await http.get(url, headers={"If-None-Match": tag} if tag else {})
        if answer.status_code == 200:
            tag = answer.headers.get("etag")
            task: dict[str, Any] = answer.json()
            view: TaskView = read_task(task)
            screen.show(view)
            if view.is_final:
                return task
        elif answer.status_code != 304:
            raise RunFailed(f"查询失败 · asking for the task gave {answer.status_code}: {answer.text}")
        await asyncio.sleep(POLL_SECONDS)


async def _tell_callbacks(http: httpx2.AsyncClient, receiver: str, task_id: str, screen: Screen) -> None:
    """Print each callback as it arrives; ends with the one that tells the end of the task."""
    async for entry in inbox(http, receiver):
        body = entry.get("body") or {}
        if body.get("taskId") != task_id:
            continue
        verified = "签名有效 signature valid" if entry.get("verified") else "签名无效 BAD SIGNATURE"
        current = body.get("currentResult") or {}
        which = f" #{current['index'] + 1}" if "index" in current else ""
        screen.say(
            f"  ↩ 回调 callback {body.get('eventType')}{which} {body.get('progress', 0):.0%} · {verified}"
        )
        if str(body.get("eventType")).startswith("task.") and body.get("eventType") != "task.created":
            return


async def inbox(http: httpx2.AsyncClient, receiver: str) -> AsyncGenerator[dict[str, Any], None]:
    """Each callback as it arrives at the receiver, from the first it ever had."""
    timeout = httpx2.Timeout(10, read=None)
    async with http.stream("GET", f"{receiver}/inbox/stream", timeout=timeout) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


async def _save_pictures(http: httpx2.AsyncClient, task: dict[str, Any], out: Path) -> list[Path]:
    await asyncio.to_thread(_clear, out)
    results = sorted((shot["index"], shot["url"]) for shot in task["shots"] if shot["url"])

    async def save(index: int, url: str) -> Path:
        answer = await http.get(url)
        if answer.status_code != 200:
            raise RunFailed(
                f"图片 #{index + 1} 下载失败 · picture {index + 1} could not be fetched: {answer.status_code}"
            )
        mime = answer.headers.get("content-type", "").partition(";")[0]
        path = out / f"shot-{index + 1:02d}.{_SUFFIXES.get(mime, 'img')}"
        path.write_bytes(answer.content)
        return path

    return list(await asyncio.gather(*(save(index, url) for index, url in results)))


def _clear(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("shot-*"):
        old.unlink()


def _reasons(task: dict[str, Any]) -> str:
    told = [
        f"#{shot['index'] + 1} {shot['error']['code']} {shot['error']['message']}"
        for shot in task["shots"]
        if shot["error"] and shot["status"] != "completed"
    ]
    return "; ".join(told[:3]) or "没有说明原因 · no reason given"
