"""The embedded COS, through the real SDK."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from qcloud_cos import CosConfig, CosS3Client, CosServiceError

from localcloud.cos import RunningCos, start_cos
from localcloud.faults import Faults, Rule
from shared.clock import SystemClock

BUCKET = "photos-1250000000"
NAMES = ["tasks/t1/shot-0.webp", "图/衣服 1+2%20?x#&=.png", "a//b", "x~*'().png"]


class ShiftedClock(SystemClock):
    shift = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.shift


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def cos(clock: ShiftedClock) -> AsyncIterator[RunningCos]:
    running = await start_cos(
        clock=clock, faults=Faults(), bucket=BUCKET, secret_id="AKID", secret_key="secret"
    )
    yield running
    await running.stop()
    gc.collect()


def a_client(cos: RunningCos, **changed: str) -> Any:
    signer = {"SecretId": "AKID", "SecretKey": "secret", **changed}
    config = CosConfig(**signer, Scheme="http", Domain=cos.domain, Timeout=(3, 10))
    return CosS3Client(config, retry=0)


async def put(cos: RunningCos, key: str, body: bytes, **more: Any) -> Any:
    return await asyncio.to_thread(a_client(cos).put_object, Bucket=BUCKET, Key=key, Body=body, **more)


async def get(cos: RunningCos, key: str, **more: Any) -> bytes:
    def read() -> bytes:
        answer = a_client(cos).get_object(Bucket=BUCKET, Key=key, **more)
        content: bytes = answer["Body"].get_raw_stream().read()
        return content

    return await asyncio.to_thread(read)


async def failure(call: Callable[..., Any], **arguments: Any) -> CosServiceError:
    with pytest.raises(CosServiceError) as caught:
        await asyncio.to_thread(call, **arguments)
    return caught.value


@pytest.mark.parametrize("key", NAMES)
async def test_an_object_comes_back_whole_in_part_and_with_its_metadata(cos: RunningCos, key: str) -> None:
    body = bytes(range(256)) * 40
    await put(cos, key, body, ContentType="image/png", Metadata={"x-cos-meta-task": "t1"})
    assert await get(cos, key) == body
    assert await get(cos, key, Range="bytes=10-19") == body[10:20]
    head = await asyncio.to_thread(a_client(cos).head_object, Bucket=BUCKET, Key=key)
    assert (head["content-length"], head["content-type"]) == (str(len(body)), "image/png")
    assert head["x-cos-meta-task"] == "t1"
    assert head["x-cos-request-id"]


async def test_exists_list_and_delete(cos: RunningCos) -> None:
    client = a_client(cos)
    for name in ("t1/0", "t1/1", "t2/0"):
        await put(cos, name, b"x")
    listed = await asyncio.to_thread(client.list_objects, Bucket=BUCKET, Prefix="t1/")
    assert [entry["Key"] for entry in listed["Contents"]] == ["t1/0", "t1/1"]
    await asyncio.to_thread(client.delete_object, Bucket=BUCKET, Key="t1/0")
    assert not await asyncio.to_thread(client.object_exists, Bucket=BUCKET, Key="t1/0")
    both = {"Object": [{"Key": "t1/1"}, {"Key": "t2/0"}]}
    await asyncio.to_thread(client.delete_objects, Bucket=BUCKET, Delete=both)
    listed = await asyncio.to_thread(client.list_objects, Bucket=BUCKET)
    assert "Contents" not in listed


async def test_an_object_can_be_copied(cos: RunningCos) -> None:
    await put(cos, "from.png", b"picture")
    source = {"Bucket": BUCKET, "Key": "from.png", "Region": "ap-guangzhou"}
    await asyncio.to_thread(a_client(cos).copy_object, Bucket=BUCKET, Key="to.png", CopySource=source)
    assert await get(cos, "to.png") == b"picture"


@pytest.mark.parametrize("key", NAMES)
async def test_presigned_urls_read_and_write_without_a_secret(cos: RunningCos, key: str) -> None:
    client = a_client(cos)
    async with httpx2.AsyncClient() as http:
        writing = client.get_presigned_url(Bucket=BUCKET, Key=key, Method="PUT", Expired=60)
        assert (await http.put(writing, content=b"uploaded")).status_code == 200
        reading = client.get_presigned_url(
            Bucket=BUCKET, Key=key, Method="GET", Expired=60, Params={"response-content-type": "image/x-test"}
        )
        answer = await http.get(reading)
        assert (answer.content, answer.headers["content-type"]) == (b"uploaded", "image/x-test")
        # For reading only: the method is signed.
        assert (await http.put(reading, content=b"other")).status_code == 403
        assert "SignatureDoesNotMatch" in (await http.get(reading.replace("x-test", "y-test"))).text


async def test_a_presigned_url_ends(cos: RunningCos, clock: ShiftedClock) -> None:
    await put(cos, "k", b"x")
    url = a_client(cos).get_presigned_url(Bucket=BUCKET, Key="k", Method="GET", Expired=60)
    async with httpx2.AsyncClient() as http:
        assert (await http.get(url)).status_code == 200
        clock.shift = timedelta(seconds=61)
        late = await http.get(url)
    assert late.status_code == 403
    assert "Request has expired" in late.text


async def test_the_bucket_is_private(cos: RunningCos) -> None:
    await put(cos, "k", b"x")
    async with httpx2.AsyncClient() as http:
        answer = await http.get(a_client(cos).get_object_url(Bucket=BUCKET, Key="k"))
    assert answer.status_code == 403
    assert "AccessDenied" in answer.text


async def test_a_wrong_secret_is_told_in_cos_words(cos: RunningCos) -> None:
    liar = a_client(cos, SecretKey="wrong")
    error = await failure(liar.put_object, Bucket=BUCKET, Key="k", Body=b"x")
    assert (error.get_status_code(), error.get_error_code()) == (403, "SignatureDoesNotMatch")
    assert error.get_resource_location().endswith(f"{BUCKET}/k")
    assert error.get_request_id()
    stranger = a_client(cos, SecretId="nobody")
    error = await failure(stranger.get_object, Bucket=BUCKET, Key="k")
    assert error.get_error_code() == "InvalidAccessKeyId"


async def test_errors_of_the_store_reach_the_sdk_by_name(cos: RunningCos) -> None:
    client = a_client(cos)
    missing = await failure(client.get_object, Bucket=BUCKET, Key="missing")
    assert (missing.get_status_code(), missing.get_error_code()) == (404, "NoSuchKey")
    unsupported = await failure(client.get_bucket_acl, Bucket=BUCKET)
    assert (unsupported.get_status_code(), unsupported.get_error_code()) == (501, "NotImplemented")
    assert "acl" in unsupported.get_error_msg()


@pytest.mark.parametrize(
    ("word", "status", "code"),
    [("500", 500, "InternalError"), ("503", 503, "ServiceUnavailable"), ("SlowDown", 503, "SlowDown")],
)
async def test_faults_speak_cos(cos: RunningCos, word: str, status: int, code: str) -> None:
    cos.faults.add(Rule(operation="PutObject", error=word, times=1))
    error = await failure(a_client(cos).put_object, Bucket=BUCKET, Key="k", Body=b"x")
    assert (error.get_status_code(), error.get_error_code()) == (status, code)
    await put(cos, "k", b"y")


async def test_a_fault_after_means_that_it_happened(cos: RunningCos) -> None:
    cos.faults.add(Rule(operation="PutObject", error="500", phase="after", times=1))
    await failure(a_client(cos).put_object, Bucket=BUCKET, Key="k", Body=b"stored")
    assert await get(cos, "k") == b"stored"


async def test_many_uploads_at_once_all_arrive(cos: RunningCos) -> None:
    bodies = {f"shots/{n}": bytes([n]) * 50_000 for n in range(24)}
    await asyncio.gather(*(put(cos, key, body) for key, body in bodies.items()))
    found = await asyncio.gather(*(get(cos, key) for key in bodies))
    assert found == list(bodies.values())
