"""Who hears of events: the mini-program (signed callback), the analytics log, and the index of tags.

None of them touches the state of a task.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from google.cloud.firestore import ArrayUnion

from shared import events
from shared.adapters import webhook
from shared.adapters.fetch import PublicFetcher
from shared.adapters.firestore import merge
from shared.clock import Clock
from shared.errors import LookbookError
from shared.flow.complete import Delivered, News, NotDelivered
from shared.logs import Log
from shared.task import Status

log = Log("analytics")


def callback_body(news: News) -> dict[str, Any]:
    """The event with the seed's flat fields beside it."""
    task, event = news.task, news.event
    body = event.envelope()
    is_final = event.event_type in events.FINAL_TYPES
    body["status"] = event.payload["status"] if is_final else Status.PROCESSING.value
    completed = event.payload["completed"] if is_final else news.completed
    body["progress"] = completed / task.total
    body["completed"] = completed
    body["total"] = task.total
    if event.event_type == events.IMAGE_GENERATED:
        body["currentResult"] = {"index": event.payload["index"], "url": event.payload["url"]}
    if "error" in event.payload:
        body["error"] = event.payload["error"]
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """The callback to the mini-program's cloud function, signed after Standard Webhooks."""

    fetcher: PublicFetcher
    secret: bytes
    timeout: timedelta
    clock: Clock

    async def __call__(self, news: News) -> Delivered:
        url = news.task.callback_url
        if not url:
            return Delivered(detail={"detail": "no callback URL"})
        body = json.dumps(callback_body(news), ensure_ascii=False, separators=(",", ":")).encode()
        headers = webhook.headers(self.secret, news.event.event_id, int(self.clock.now().timestamp()), body)
        try:
            status, _ = await self.fetcher.post(url, headers=headers, body=body, timeout=self.timeout)
        except LookbookError as error:
            raise NotDelivered(f"{error.code}: {error.message}") from error
        if not 200 <= status < 300:
            raise NotDelivered(f"the receiver answered {status}")
        return Delivered(detail={"status": status})


async def analytics(news: News) -> Delivered:
    """One structured line per event; log-based metrics count them."""
    payload = news.event.payload
    log.info(
        "analytics.event",
        event_type=news.event.event_type,
        task_id=news.task.task_id,
        mode=news.task.mode,
        scene=news.task.params.scene,
        style=news.task.params.style,
        model=news.task.model,
        code=payload.get("error", {}).get("code"),
        metrics=payload.get("metrics"),
    )
    return Delivered()


async def tag_indexer(news: News) -> Delivered:
    """Keeps `tagIndex/{taskId}`: what a task is about, to be found by `array_contains`."""
    task = news.task
    tags = {task.mode, *filter(None, (task.params.scene, task.params.style, task.params.color))}
    for color in news.event.payload.get("analysis", {}).get("dominantColors", []):
        tags.add(color["name"])
    entry = merge(
        f"tagIndex/{task.task_id}",
        {
            "taskId": task.task_id,
            "userId": task.user_id,
            "tags": ArrayUnion(sorted(tags)),
            "createdAt": task.created_at,
            "expireAt": task.expire_at,
        },
    )
    return Delivered(detail={"tags": len(tags)}, writes=[entry])
