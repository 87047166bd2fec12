"""Where pictures are kept: Tencent COS through its own SDK, which blocks and so runs on threads of ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final, TypeVar

import requests
import urllib3.exceptions

from shared.errors import InternalError, LookbookError, ServiceUnavailable, TimedOut, UnknownError

Answer = TypeVar("Answer")

_AT_ONCE: Final = 64
_CONNECT_SECONDS, _READ_SECONDS = 3, 30
_TOTAL_SECONDS: Final = 60
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
"""Every object has a name of its own and is never written twice."""


class NoSuchObject(KeyError):
    """There is no object of this name; its argument is the name."""


class CosStore:
    def __init__(
        self,
        *,
        secret_id: str,
        secret_key: str,
        bucket: str,
        region: str,
        domain: str | None = None,
        scheme: str = "https",
    ) -> None:
        """`domain` (`host:port/bucket`) replaces the address that the region gives."""
        from qcloud_cos import CosConfig, CosS3Client

        # At DEBUG the SDK logs the signing key.
        logging.getLogger("qcloud_cos").setLevel(logging.WARNING)
        place = {"Domain": domain} if domain else {"Region": region}
        config = CosConfig(
            SecretId=secret_id,
            SecretKey=secret_key,
            Scheme=scheme,
            Timeout=(_CONNECT_SECONDS, _READ_SECONDS),
            **place,
        )
        self._bucket = bucket
        self._session = _session()
        # `retry` counts the tries after the first.
        self._client = CosS3Client(config, retry=0, session=self._session)
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="cos")

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        await self._run(
            key,
            lambda: self._client.put_object(
                Bucket=self._bucket, Key=key, Body=data, ContentType=content_type, CacheControl=_IMMUTABLE
            ),
        )

    async def get(self, key: str) -> bytes:
        """`NoSuchObject` if there is none."""

        def read() -> bytes:
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            content: bytes = answer["Body"].get_raw_stream().read()
            return content

        return await self._run(key, read)

    async def exists(self, key: str) -> bool:
        try:
            await self._run(key, lambda: self._client.head_object(Bucket=self._bucket, Key=key))
        except NoSuchObject:
            return False
        return True

    def url(self, key: str, expires: timedelta) -> str:
        """A link that anybody may read the object with until it expires; computed here, without a call."""
        signed: str = self._client.get_presigned_url(
            Bucket=self._bucket, Key=key, Method="GET", Expired=int(expires.total_seconds())
        )
        return signed

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._session.close()

    async def _run(self, key: str, call: Callable[[], Answer]) -> Answer:
        from qcloud_cos.cos_exception import CosClientError, CosServiceError

        failure: LookbookError | NoSuchObject
        try:
            async with asyncio.timeout(_TOTAL_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except CosServiceError as error:
            failure = classify_status(error.get_status_code(), key)
        except CosClientError as error:
            failure = _classify_client_error(error)
        except TimeoutError:
            failure = TimedOut("The picture store did not answer in time.")
        except (OSError, urllib3.exceptions.HTTPError):
            failure = ServiceUnavailable("The connection to the picture store broke.")
        raise failure


def classify_status(status: int, key: str) -> LookbookError | NoSuchObject:
    if status == 404:
        return NoSuchObject(key)
    if status == 408:
        return TimedOut("The picture store gave up waiting.")
    if status in (429, 502, 503, 504):
        return ServiceUnavailable(f"The picture store answered {status}.")
    if status >= 500:
        return InternalError(f"The picture store answered {status}.")
    return UnknownError(f"The picture store answered {status}.")


def _classify_client_error(error: Exception) -> LookbookError:
    # The SDK turns what requests raised into a string and lets it go only as the context.
    cause = error.__context__
    if isinstance(cause, requests.ConnectTimeout):
        return ServiceUnavailable("The picture store could not be reached.")
    if isinstance(cause, requests.Timeout):
        return TimedOut("The picture store did not answer in time.")
    if isinstance(cause, requests.RequestException):
        return ServiceUnavailable("The picture store could not be reached.")
    return UnknownError("The picture store's client failed.")


def _session() -> Any:
    """A pool of our own: the SDK's is shared by all clients of the process and has the first one's size."""
    session = requests.Session()
    session.trust_env = False
    adapter = requests.adapters.HTTPAdapter(pool_connections=4, pool_maxsize=_AT_ONCE)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session
