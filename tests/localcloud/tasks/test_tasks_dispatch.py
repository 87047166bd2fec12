"""When and how tasks reach a worker, and what they tell it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from google.cloud import tasks_v2
from google.protobuf import duration_pb2
from starlette.responses import Response

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_schedule_time_is_honoured_and_told(cloud, worker):
    await cloud.queue()
    when = datetime.now(UTC) + timedelta(seconds=0.3)
    await cloud.task("later", schedule_time=when)
    await cloud.task("now")
    calls = await worker.until(2)
    assert [call.task for call in calls] == ["now", "later"]
    assert datetime.now(UTC) >= when
    assert abs(float(calls[1].headers["x-cloudtasks-tasketa"]) - when.timestamp()) < 0.001


async def test_a_task_ahead_of_a_far_one_does_not_wait_for_it(cloud, worker):
    await cloud.queue()
    await cloud.task("far", schedule_time=datetime.now(UTC) + timedelta(hours=5))
    await cloud.task("near", schedule_time=datetime.now(UTC) + timedelta(seconds=0.05))
    assert (await worker.until(1))[0].task == "near"


async def test_failed_task_is_retried_and_the_headers_count_it(cloud, worker, retries, answering):
    worker.answer = answering(404, 500, 302, 200)
    await cloud.queue(retry_config=retries())
    task = await cloud.task()
    calls = await worker.until(4)
    await cloud.gone(task.name)
    told = [
        tuple(
            call.headers.get(f"x-cloudtasks-task{name}")
            for name in ("retrycount", "executioncount", "previousresponse", "retryreason")
        )
        for call in calls
    ]
    assert told == [
        ("0", "0", None, None),
        ("1", "1", "404", ""),
        ("2", "1", "500", ""),  # a 5xx is a retry, not an execution
        ("3", "2", "302", ""),  # a redirect is not followed
    ]


async def test_attempts_are_recorded_on_the_task(cloud, worker, answering):
    worker.answer = answering(503)
    await cloud.queue(retry_config={"min_backoff": duration_pb2.Duration(seconds=60)})
    made = await cloud.task()
    await worker.until(1)
    async with asyncio.timeout(5):
        task = made
        while not task.response_count:
            task = await cloud.client.get_task(name=made.name)
    assert (task.dispatch_count, task.response_count) == (1, 1)
    assert task.last_attempt.response_status.code == 14
    assert task.last_attempt.response_status.message == "UNAVAILABLE(14): HTTP status code 503"
    assert task.first_attempt.dispatch_time == task.last_attempt.dispatch_time
    assert (
        timedelta(seconds=59) < task.schedule_time - task.last_attempt.response_time < timedelta(seconds=61)
    )


async def test_task_out_of_attempts_disappears(cloud, worker, retries, answering):
    worker.answer = answering(400)
    await cloud.queue(retry_config=retries(max_attempts=3))
    task = await cloud.task()
    await worker.until(3)
    await cloud.gone(task.name)
    assert len(worker.calls) == 3


async def test_tasks_own_retry_settings_win_over_the_queues(cloud, worker, retries, answering):
    worker.answer = answering(400)
    await cloud.queue(retry_config=retries())
    task = await cloud.task(retry_config=tasks_v2.RetryConfig(max_attempts=2))
    await worker.until(2)
    await cloud.gone(task.name)
    assert len(worker.calls) == 2


async def test_never_more_at_once_than_allowed(cloud, worker, retries):
    at_once = most = 0

    async def answer(call):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return Response(status_code=500 if call.headers["x-cloudtasks-taskretrycount"] == "0" else 200)

    worker.answer = answer
    await cloud.queue(rate_limits={"max_concurrent_dispatches": 3}, retry_config=retries())
    await asyncio.gather(*(cloud.task() for _ in range(20)))
    await worker.until(40)
    assert most == 3


async def test_paused_queue_keeps_its_tasks_until_resumed(cloud, worker):
    await cloud.queue()
    paused = await cloud.client.pause_queue(name=cloud.queue_name())
    assert paused.state == tasks_v2.Queue.State.PAUSED
    await cloud.task("held")
    await cloud.queue("other")
    await cloud.task("free", queue="other")
    assert [call.task for call in await worker.until(1)] == ["free"]
    await cloud.client.resume_queue(name=cloud.queue_name())
    assert [call.task for call in await worker.until(2)] == ["free", "held"]


async def test_purge_takes_all_tasks_and_says_when(cloud, worker):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    for _ in range(3):
        await cloud.task()
    purged = await cloud.client.purge_queue(name=cloud.queue_name())
    assert purged.purge_time is not None
    assert [task async for task in await cloud.client.list_tasks(parent=cloud.queue_name())] == []
    await cloud.client.resume_queue(name=cloud.queue_name())
    await cloud.task("after")
    assert [call.task for call in await worker.until(1)] == ["after"]


async def test_run_task_ignores_pause_and_schedule(cloud, worker):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    made = await cloud.task(schedule_time=datetime.now(UTC) + timedelta(hours=1))
    ran = await cloud.client.run_task(name=made.name)
    assert ran.dispatch_count == 1
    await worker.until(1)
    await cloud.gone(made.name)


async def test_worker_that_does_not_answer_by_the_deadline_is_tried_again(cloud_on, worker, fast_clock):
    async def answer(call):
        if call.headers["x-cloudtasks-taskretrycount"] == "0":
            await asyncio.sleep(5)
        return Response()

    worker.answer = answer
    async with cloud_on(clock=fast_clock(100)) as cloud:
        await cloud.queue()
        task = await cloud.task(dispatch_deadline=duration_pb2.Duration(seconds=15))
        calls = await worker.until(2)
        assert calls[1].headers["x-cloudtasks-taskpreviousresponse"] == "504"
        assert calls[1].headers["x-cloudtasks-taskexecutioncount"] == "0"
        await cloud.gone(task.name)


async def test_worker_that_is_not_there_is_tried_again(cloud, worker, retries):
    await cloud.queue(retry_config=retries(max_attempts=2))
    task = await cloud.task(url="http://127.0.0.1:1/")
    await cloud.gone(task.name)
    assert cloud.running.counts.snapshot()["dispatches"] == {"q": 2}


async def test_oidc_token_verifies_against_the_published_keys(cloud, worker):
    await cloud.queue()
    account = "caller@p.iam.gserviceaccount.com"
    token = {"service_account_email": account, "audience": "https://generate"}
    await cloud.task(request={"oidc_token": token, "headers": {"authorization": "mine"}})
    await cloud.task(request={"oidc_token": {"service_account_email": account}})
    calls = await worker.until(2)
    bearers = [call.headers["authorization"].removeprefix("Bearer ") for call in calls]
    keys = jwt.PyJWKClient(cloud.running.jwks_url)
    claims = []
    for bearer in bearers:
        key = await asyncio.to_thread(keys.get_signing_key_from_jwt, bearer)
        claims.append(
            jwt.decode(
                bearer,
                key,
                algorithms=["RS256"],
                audience=["https://generate", worker.url],
                issuer="https://accounts.google.com",
            )
        )
    assert {claim["aud"] for claim in claims} == {"https://generate", worker.url}
    for claim in claims:
        assert (claim["email"], claim["email_verified"]) == (account, True)
        assert claim["exp"] - claim["iat"] == 3600
        assert claim["sub"] == claim["azp"]


async def test_oauth_token_is_sent_as_an_opaque_bearer(cloud, worker):
    await cloud.queue()
    await cloud.task(request={"oauth_token": {"service_account_email": "a@b.c"}})
    assert (await worker.until(1))[0].headers["authorization"].startswith("Bearer ya29.")
