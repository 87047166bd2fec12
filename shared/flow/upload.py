"""Puts what was worked or paid for into storage, and doesn't give up at the first refusal."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from shared.adapters.cos import CosStore
from shared.clock import Clock
from shared.errors import Transient
from shared.logs import Log

log = Log("upload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploader:
    store: CosStore
    clock: Clock
    rng: random.Random

    async def put(self, key: str, data: bytes, mime_type: str) -> None:
        """Tries until it works; how long that may take is the caller's affair."""
        for attempt in itertools.count():
            try:
                await self.store.put(key, data, mime_type)
            except Transient as error:
                log.warning("upload.retry", cos_key=key, code=error.code, attempt=attempt + 1)
                await self.clock.sleep(self.rng.uniform(0.5, 1.0) * 2 ** min(attempt, 3))
            else:
                return
