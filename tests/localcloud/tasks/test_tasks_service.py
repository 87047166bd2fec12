"""What a client of Cloud Tasks sees, through Google's own library and a worker that takes the calls."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from google.api_core import exceptions as google
from google.cloud import tasks_v2
from google.protobuf import duration_pb2, field_mask_pb2
from starlette.responses import Response

from localcloud.faults import Rule

pytestmark = pytest.mark.asyncio(loop_scope="module")

BASIC, FULL = tasks_v2.Task.View.BASIC, tasks_v2.Task.View.FULL


def answering(*statuses, headers=None):
    """An answer for each call in turn, the last one for ever."""
    left = list(statuses)

    async def answer(call):
        return Response(status_code=left.pop(0) if len(left) > 1 else left[0], headers=headers)

    return answer


# -- queues


async def test_new_queue_has_googles_defaults(cloud):
    await cloud.queue()
    queue = await cloud.client.get_queue(name=cloud.queue_name())
    assert queue.state == tasks_v2.Queue.State.RUNNING
    assert queue.rate_limits.max_dispatches_per_second == 500
    assert queue.rate_limits.max_burst_size == 100
    assert queue.rate_limits.max_concurrent_dispatches == 1000
    assert queue.retry_config.max_attempts == 100
    assert queue.retry_config.min_backoff == timedelta(milliseconds=100)
    assert queue.retry_config.max_backoff == timedelta(hours=1)
    assert queue.retry_config.max_doublings == 16


async def test_update_changes_what_the_mask_names_and_nothing_else(cloud):
    await cloud.queue(rate_limits={"max_dispatches_per_second": 5, "max_concurrent_dispatches": 7})
    updated = await cloud.client.update_queue(
        queue=tasks_v2.Queue(
            name=cloud.queue_name(),
            rate_limits={"max_dispatches_per_second": 9, "max_concurrent_dispatches": 1},
            retry_config={"max_attempts": 3},
        ),
        update_mask=field_mask_pb2.FieldMask(paths=["rate_limits.max_dispatches_per_second"]),
    )
    assert updated.rate_limits.max_dispatches_per_second == 9
    assert updated.rate_limits.max_concurrent_dispatches == 7
    assert updated.retry_config.max_attempts == 100


async def test_update_without_a_mask_sets_everything_and_keeps_the_state(cloud):
    await cloud.queue(rate_limits={"max_dispatches_per_second": 5})
    await cloud.client.pause_queue(name=cloud.queue_name())
    updated = await cloud.client.update_queue(
        queue=tasks_v2.Queue(name=cloud.queue_name(), retry_config={"max_attempts": 3})
    )
    assert updated.rate_limits.max_dispatches_per_second == 500
    assert updated.retry_config.max_attempts == 3
    assert updated.state == tasks_v2.Queue.State.PAUSED


async def test_update_of_a_missing_queue_makes_it(cloud):
    await cloud.client.update_queue(queue=tasks_v2.Queue(name=cloud.queue_name()))
    assert (await cloud.client.get_queue(name=cloud.queue_name())).name == cloud.queue_name()


async def test_queues_are_listed_in_pages_and_by_state(cloud):
    for name in "abcde":
        await cloud.queue(name)
    await cloud.client.pause_queue(name=cloud.queue_name("c"))
    location = cloud.queue_name().split("/queues/")[0]
    pager = await cloud.client.list_queues(request={"parent": location, "page_size": 2})
    pages = [[queue.name[-1] for queue in page.queues] async for page in pager.pages]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    paused = await cloud.client.list_queues(request={"parent": location, "filter": "state: PAUSED"})
    assert [queue.name[-1] async for queue in paused] == ["c"]


@pytest.mark.parametrize(
    "settings",
    [
        {"rate_limits": {"max_dispatches_per_second": 501}},
        {"rate_limits": {"max_dispatches_per_second": -1}},
        {"rate_limits": {"max_dispatches_per_second": float("nan")}},
        {"rate_limits": {"max_concurrent_dispatches": 5001}},
        {"retry_config": {"max_attempts": -2}},
        {"retry_config": {"max_doublings": -1}},
        {
            "retry_config": {
                "min_backoff": duration_pb2.Duration(seconds=9),
                "max_backoff": duration_pb2.Duration(seconds=1),
            }
        },
        {"retry_config": {"min_backoff": duration_pb2.Duration(seconds=-9)}},
        {"stackdriver_logging_config": {"sampling_ratio": 2}},
    ],
)
async def test_settings_out_of_range_are_refused(cloud, settings):
    with pytest.raises(google.InvalidArgument):
        await cloud.queue(**settings)
    with pytest.raises(google.NotFound):
        await cloud.client.get_queue(name=cloud.queue_name())


async def test_deleted_queue_takes_its_tasks_with_it(cloud, worker):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    task = await cloud.task()
    await cloud.client.delete_queue(name=cloud.queue_name())
    with pytest.raises(google.NotFound):
        await cloud.client.get_task(name=task.name)
    with pytest.raises(google.NotFound):
        await cloud.task()


# -- tasks: names, views, lists


async def test_task_runs_with_method_headers_and_body(cloud, worker):
    await cloud.queue()
    headers = {
        "Content-Type": "application/json",
        "X-Mine": "1",
        "x-cloudtasks-taskname": "forged",
        "X-CloudTasks-Mine": "1",
        "X-CloudTasks-TaskPreviousResponse": "200",
        "Host": "elsewhere",
    }
    await cloud.task("hello", request={"http_method": "PUT", "headers": headers, "body": b'{"a":1}'})
    call = (await worker.until(1))[0]
    assert (call.method, call.body) == ("PUT", b'{"a":1}')
    assert worker.url.endswith(call.path)
    assert call.headers["content-type"] == "application/json"
    assert call.headers["x-mine"] == "1"
    assert call.headers["user-agent"] == "Google-Cloud-Tasks"
    assert call.headers["x-cloudtasks-queuename"] == "q"
    assert call.headers["x-cloudtasks-taskname"] == "hello"
    assert call.headers["x-cloudtasks-taskretrycount"] == "0"
    assert call.headers["x-cloudtasks-taskexecutioncount"] == "0"
    assert float(call.headers["x-cloudtasks-tasketa"]) > 1_700_000_000
    assert "x-cloudtasks-taskpreviousresponse" not in call.headers
    assert "x-cloudtasks-mine" not in call.headers
    assert call.headers["host"] in worker.url


async def test_name_stays_taken_while_waiting_and_after_run_delete_and_purge(cloud, worker):
    await cloud.queue()
    ran = await cloud.task("ran")
    await worker.until(1)
    await cloud.gone(ran.name)
    await cloud.client.pause_queue(name=cloud.queue_name())
    await cloud.task("purged")
    await cloud.client.purge_queue(name=cloud.queue_name())
    await cloud.task("waiting")
    deleted = await cloud.task("deleted")
    await cloud.client.delete_task(name=deleted.name)
    for name in ("ran", "purged", "waiting", "deleted"):
        with pytest.raises(google.AlreadyExists):
            await cloud.task(name)
    for name in (ran.name, deleted.name):
        with pytest.raises(google.NotFound):
            await cloud.client.delete_task(name=name)
        with pytest.raises(google.NotFound):
            await cloud.client.run_task(name=name)


async def test_name_is_free_again_after_a_day(cloud_on, virtual, worker):
    async with cloud_on(clock=virtual) as cloud:
        await cloud.queue()
        task = await cloud.task("again", schedule_time=virtual.now() + timedelta(hours=1))
        await cloud.client.delete_task(name=task.name)
        await virtual.run(23 * 3600)
        with pytest.raises(google.AlreadyExists):
            await cloud.task("again")
        await virtual.run(2 * 3600)
        await cloud.task("again")


async def test_basic_view_hides_the_body_and_no_view_shows_a_token(cloud):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    made = await cloud.task(
        request={
            "body": b"secret",
            "headers": {"Authorization": "Bearer abc", "X-Mine": "1"},
            "oidc_token": {"service_account_email": "a@b.c"},
        }
    )
    basic = await cloud.client.get_task(name=made.name)
    full = await cloud.client.get_task(request={"name": made.name, "response_view": FULL})
    listed = await cloud.client.list_tasks(request={"parent": cloud.queue_name(), "response_view": FULL})
    assert (made.http_request.body, basic.http_request.body) == (b"", b"")
    assert (made.view, basic.view, full.view) == (BASIC, BASIC, FULL)
    assert full.http_request.body == b"secret"
    assert [task.http_request.body async for task in listed] == [b"secret"]
    assert full.http_request.oidc_token.service_account_email == "a@b.c"
    for task in (made, basic, full):
        assert dict(task.http_request.headers) == {"X-Mine": "1", "User-Agent": "Google-Cloud-Tasks"}
        assert task.http_request.http_method == tasks_v2.HttpMethod.POST


async def test_tasks_are_listed_in_pages_without_gaps(cloud):
    await cloud.queue()
    await cloud.client.pause_queue(name=cloud.queue_name())
    made = [(await cloud.task()).name for _ in range(7)]
    pager = await cloud.client.list_tasks(request={"parent": cloud.queue_name(), "page_size": 3})
    first = [task.name for task in (await anext(aiter(pager.pages))).tasks]
    await cloud.client.delete_task(name=first[-1])
    assert first + [task.name async for page in _rest(pager) for task in page.tasks] == made


async def _rest(pager):
    pages = aiter(pager.pages)
    await anext(pages)
    async for page in pages:
        yield page


async def test_task_of_another_queue_or_in_a_missing_queue_is_refused(cloud):
    await cloud.queue()
    task = tasks_v2.Task(name=f"{cloud.queue_name('other')}/tasks/a", http_request={"url": cloud.worker.url})
    with pytest.raises(google.InvalidArgument):
        await cloud.client.create_task(parent=cloud.queue_name(), task=task)
    with pytest.raises(google.NotFound):
        await cloud.client.create_task(parent=cloud.queue_name("other"), task=task)


# -- when tasks run


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


async def test_failed_task_is_retried_and_the_headers_count_it(cloud, worker, retries):
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
        ("1", "1", "404", "HTTP status code 404"),
        ("2", "1", "500", "HTTP status code 500"),  # a 5xx is a retry, not an execution
        ("3", "2", "302", "HTTP status code 302"),  # a redirect is not followed
    ]


async def test_attempts_are_recorded_on_the_task(cloud, worker):
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
    assert task.last_attempt.response_status.message == "HTTP status code 503"
    assert task.first_attempt.dispatch_time == task.last_attempt.dispatch_time
    assert (
        timedelta(seconds=59) < task.schedule_time - task.last_attempt.response_time < timedelta(seconds=61)
    )


async def test_task_out_of_attempts_disappears(cloud, worker, retries):
    worker.answer = answering(400)
    await cloud.queue(retry_config=retries(max_attempts=3))
    task = await cloud.task()
    await worker.until(3)
    await cloud.gone(task.name)
    assert len(worker.calls) == 3


async def test_tasks_own_retry_settings_win_over_the_queues(cloud, worker, retries):
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
        assert calls[1].headers["x-cloudtasks-taskretryreason"] == "Dispatch deadline exceeded"
        assert calls[1].headers["x-cloudtasks-taskexecutioncount"] == "0"
        await cloud.gone(task.name)


async def test_worker_that_is_not_there_is_tried_again(cloud, worker, retries):
    await cloud.queue(retry_config=retries(max_attempts=2))
    task = await cloud.task(url="http://127.0.0.1:1/")
    await cloud.gone(task.name)
    assert cloud.running.counts.snapshot()["dispatches"] == {"q": 2}


# -- who calls


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


# -- what goes wrong on request


async def test_duplicate_delivers_twice_and_counts_as_one_attempt(cloud, worker):
    cloud.running.faults.add(Rule(operation="dispatch:q", error="duplicate", times=1))
    await cloud.queue()
    task = await cloud.task()
    calls = await worker.until(2)
    await cloud.gone(task.name)
    assert [call.headers["x-cloudtasks-taskretrycount"] for call in calls] == ["0", "0"]


async def test_lost_answer_is_delivered_and_then_retried(cloud, worker, retries):
    cloud.running.faults.add(Rule(operation="dispatch:q", error="lose_answer", times=1))
    await cloud.queue(retry_config=retries())
    await cloud.task()
    calls = await worker.until(2)
    assert [call.headers["x-cloudtasks-taskretrycount"] for call in calls] == ["0", "1"]


async def test_dropped_dispatch_never_connects_and_is_retried(cloud, worker, retries):
    cloud.running.faults.add(Rule(operation="dispatch:q", error="drop", times=1))
    await cloud.queue(retry_config=retries())
    await cloud.task()
    calls = await worker.until(1)
    assert [call.headers["x-cloudtasks-taskretrycount"] for call in calls] == ["1"]


async def test_rpc_faults_before_and_after_the_work(cloud, worker):
    await cloud.queue()
    cloud.running.faults.add(Rule(operation="CreateTask", error="UNAVAILABLE", times=1))
    with pytest.raises(google.ServiceUnavailable):
        await cloud.task("t")
    cloud.running.faults.add(Rule(operation="CreateTask", error="UNAVAILABLE", times=1, phase="after"))
    with pytest.raises(google.ServiceUnavailable):
        await cloud.task("t")
    with pytest.raises(google.AlreadyExists):
        await cloud.task("t")
    assert [call.task for call in await worker.until(1)] == ["t"]


async def test_counts_tell_calls_and_dispatches_and_can_be_reset(cloud, worker):
    await cloud.queue()
    task = await cloud.task()
    await worker.until(1)
    await cloud.gone(task.name)
    counts = cloud.running.counts.snapshot()
    assert counts["calls"]["CreateTask"] == 1
    assert counts["dispatches"] == {"q": 1}
    cloud.running.counts.reset()
    assert cloud.running.counts.snapshot() == {"calls": {}, "dispatches": {}}


# -- odd inputs


@pytest.mark.parametrize(
    "change",
    [
        {"request": {"url": ""}},
        {"request": {"url": "ftp://host/"}},
        {"request": {"url": "http://"}},
        {"request": {"url": "http://[::1"}},
        {"request": {"url": "http://host:99999/"}},
        {"request": {"url": "http://host/a b"}},
        {"request": {"url": "http://host/" + "a" * 2083}},
        {"request": {"http_method": "GET", "body": b"x"}},
        {"request": {"http_method": 99}},
        {"request": {"headers": {"bad name": "x"}}},
        {"request": {"headers": {"X": "a\r\nInjected: 1"}}},
        {"request": {"headers": {"X": "a" * 90_000}}},
        {"request": {"body": b"x" * 1_100_000}},
        {"request": {"oidc_token": {"service_account_email": "nobody"}}},
        {"dispatch_deadline": duration_pb2.Duration(seconds=14)},
        {"dispatch_deadline": duration_pb2.Duration(seconds=1801)},
        {"dispatch_deadline": duration_pb2.Duration(seconds=2**62)},
        {"schedule_time": datetime.now(UTC) + timedelta(days=40)},
        {"name": "bad name"},
        {"name": "x" * 501},
    ],
)
async def test_odd_task_is_refused_and_leaves_nothing(cloud, change):
    await cloud.queue()
    fields = dict(change)
    request = fields.pop("request", {})
    url = request.pop("url", cloud.worker.url) if "url" in request else cloud.worker.url
    task = tasks_v2.Task(http_request={"url": url, **request})
    name = fields.pop("name", None)
    if name:
        task.name = f"{cloud.queue_name()}/tasks/{name}"
    for field_name, value in fields.items():
        setattr(task, field_name, value)
    with pytest.raises(google.InvalidArgument):
        await cloud.client.create_task(parent=cloud.queue_name(), task=task)
    assert [task async for task in await cloud.client.list_tasks(parent=cloud.queue_name())] == []


@pytest.mark.parametrize(
    "url", ["http://xn--/", "http://a..b/", "http://" + "a" * 70 + ".invalid/", "http://0.0.0.0:1/%zz?#"]
)
async def test_target_that_cannot_be_called_disturbs_no_other_task(cloud, worker, retries, url):
    await cloud.queue("odd", retry_config=retries(max_attempts=2))
    await cloud.queue()
    try:
        odd = await cloud.task(queue="odd", url=url)
    except google.InvalidArgument:
        odd = None
    await cloud.task("fine")
    assert [call.task for call in await worker.until(1)] == ["fine"]
    if odd:
        await cloud.gone(odd.name)


async def test_answers_of_any_shape_are_survived(cloud, worker, retries):
    async def answer(call):
        if call.headers["x-cloudtasks-taskretrycount"] == "0":
            return Response(b"x" * 1_000_000, status_code=429, headers={"Retry-After": "soon, maybe"})
        return Response()

    worker.answer = answer
    await cloud.queue(retry_config=retries())
    task = await cloud.task()
    await cloud.gone(task.name)


async def test_app_engine_and_unknown_features_are_refused_by_name(cloud):
    await cloud.queue()
    with pytest.raises(google.MethodNotImplemented, match="app_engine_http_request"):
        await cloud.client.create_task(
            parent=cloud.queue_name(), task=tasks_v2.Task(app_engine_http_request={"relative_uri": "/"})
        )
    with pytest.raises(google.MethodNotImplemented, match="http_target"):
        await cloud.queue("r", http_target={"http_method": "GET"})
    with pytest.raises(google.MethodNotImplemented, match="http_target"):
        await cloud.client.update_queue(
            queue=tasks_v2.Queue(name=cloud.queue_name(), http_target={"header_overrides": [{}]}),
            update_mask=field_mask_pb2.FieldMask(paths=["http_target.header_overrides"]),
        )
    with pytest.raises(google.MethodNotImplemented, match="CloudTasks/GetIamPolicy"):
        await cloud.client.get_iam_policy(request={"resource": cloud.queue_name()})
    with pytest.raises(google.MethodNotImplemented, match="Locations/ListLocations"):
        await cloud.client.list_locations(request={"name": "projects/p"})


async def test_bad_names_masks_and_page_tokens_are_refused(cloud):
    await cloud.queue()
    client = cloud.client
    location = cloud.queue_name().split("/queues/")[0]
    refused = [
        client.get_queue(name="q"),
        client.get_queue(name=f"{location}/queues/a_b"),
        client.get_task(name=cloud.queue_name()),
        client.create_queue(parent="projects/p", queue=tasks_v2.Queue(name=cloud.queue_name("x"))),
        client.create_queue(
            parent=location.replace("/p/", "/o/"), queue=tasks_v2.Queue(name=cloud.queue_name("x"))
        ),
        client.list_tasks(request={"parent": cloud.queue_name(), "page_token": "?"}),
        client.list_tasks(request={"parent": cloud.queue_name(), "page_token": "eHg="}),
        client.list_tasks(request={"parent": cloud.queue_name(), "page_size": -1}),
        client.update_queue(
            queue=tasks_v2.Queue(name=cloud.queue_name()),
            update_mask=field_mask_pb2.FieldMask(paths=["rate_limits.nonsense"]),
        ),
    ]
    for call in refused:
        with pytest.raises(google.InvalidArgument):
            await call
    with pytest.raises(google.AlreadyExists):
        await cloud.queue()
