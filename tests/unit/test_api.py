"""What may be submitted, rule by rule, through the same door as a request; and what a task's owner is shown."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.requests import Request

from shared.api import SessionIn, TaskIn, accepted, iso, show, summary
from shared.http import parse, problem_response
from shared.problems import Problem
from shared.task import Claim, Params, Plan, PlanState, Result, Shot, Status, Task

PHOTO = "https://photos.example/garment.jpg"
NOON = datetime(2025, 10, 13, 12, 0, tzinfo=UTC)
BILINGUAL = re.compile(r".*[\u4e00-\u9fff].* / .*[A-Za-z]{2}.*", re.DOTALL)
REQUEST = Request(
    {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
)


def a_body(**changes: Any) -> dict[str, Any]:
    return {"images": [PHOTO], **changes}


def submit(body: dict[str, Any]) -> TaskIn:
    return parse(TaskIn, REQUEST, json.dumps(body).encode())


def refusal(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The (pointer, message) pairs of a refusal that has everything a refusal must have."""
    with pytest.raises(Problem) as refused:
        submit(body)
    problem = refused.value
    document = json.loads(bytes(problem_response(problem).body))
    assert (document["code"], document["status"]) == ("INVALID_REQUEST", 422)
    assert BILINGUAL.fullmatch(document["title"])
    assert document["errors"]
    assert all(BILINGUAL.fullmatch(fault["message"]) for fault in document["errors"])
    return [(fault["pointer"], fault["message"]) for fault in document["errors"]]


def pointers(body: dict[str, Any]) -> list[str]:
    return [pointer for pointer, _ in refusal(body)]


def test_the_smallest_request_is_one_photo() -> None:
    task = submit({"images": [PHOTO]})
    assert (task.mode, task.prompt, task.count) == ("normal", "", 1)
    assert (task.params.aspect_ratio, task.priority, task.api_payload) == ("3:4", 0, {})
    assert (task.user_id, task.model, task.callback_url) == (None, None, None)
    assert task.prompt_cache is True


def test_the_fullest_request_is_read_by_the_seeds_names() -> None:
    task = submit(
        {
            "userId": "openid-1",
            "mode": "photo_set",
            "images": ["cloud://env.6c6f/photos/1.jpg", PHOTO],
            "params": {
                "scene": "商业摄影",
                "style": "现代简约",
                "count": 9,
                "background": "白墙",
                "color": "暖色",
                "aspectRatio": "9:16",
            },
            "prompt": "袖口不要变形",
            "model": "gemini-2.5-flash-image",
            "apiPayload": {"temperature": 0.4, "topK": 40},
            "priority": 9,
            "callbackUrl": "https://hooks.example/done",
            "promptCache": False,
        }
    )
    assert (task.user_id, task.mode, task.count, task.priority) == ("openid-1", "photo_set", 9, 9)
    assert (task.params.scene, task.params.background, task.params.aspect_ratio) == (
        "商业摄影",
        "白墙",
        "9:16",
    )
    assert task.api_payload == {"temperature": 0.4, "topK": 40}
    assert task.prompt_cache is False


@pytest.mark.parametrize(("mode", "count"), [("normal", 1), ("photo_set", 9)])
def test_a_mode_has_its_own_number_of_pictures_unless_told(mode: str, count: int) -> None:
    assert submit(a_body(mode=mode)).count == count
    assert submit(a_body(mode=mode, params={"count": 4})).count == 4


@pytest.mark.parametrize("mode", ["", "photo-set", "NORMAL", "video", None, 1, ["normal"]])
def test_a_mode_that_does_not_exist_is_refused(mode: Any) -> None:
    assert pointers(a_body(mode=mode)) == ["/mode"]


def test_a_request_without_photos_is_refused() -> None:
    assert pointers({}) == ["/images"]
    assert pointers({"images": []}) == ["/images"]
    assert pointers({"images": None}) == ["/images"]
    assert pointers({"images": PHOTO}) == ["/images"]


def test_one_to_eight_photos_are_taken_and_nine_are_not() -> None:
    photos = [f"{PHOTO}?{number}" for number in range(9)]
    for number in range(1, 9):
        assert len(submit({"images": photos[:number]}).images) == number
    assert pointers({"images": photos}) == ["/images"]


def test_the_same_photo_twice_is_refused() -> None:
    ((pointer, message),) = refusal({"images": [PHOTO, PHOTO]})
    assert pointer in ("", "/images")
    assert "twice" in message


@pytest.mark.parametrize(
    "url",
    [
        PHOTO,
        "HTTPS://photos.example/a.jpg",
        "https://photos.example:8443/a.jpg?x=1#y",
        "https://例子.example/衣服.jpg",
        "https://[2001:db8::1]/a.jpg",
        "cloud://env.6c6f-env-1250000000/photos/1.jpg",
    ],
)
def test_an_https_or_cloud_address_is_taken(url: str) -> None:
    assert submit({"images": [url]}).images == [url]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "garment.jpg",
        "//photos.example/a.jpg",
        "ftp://photos.example/a.jpg",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "javascript:alert(1)",
        "gs://bucket/a.jpg",
        "https://",
        "https:///a.jpg",
        "https://user:password@photos.example/a.jpg",
        "https://user@photos.example/a.jpg",
        "https://photos.example:99999/a.jpg",
        "https://photos.example:abc/a.jpg",
        "https://[::1/a.jpg",
        "https://photos.example/a b.jpg",
        "https://photos.example/a.jpg\n",
        "https://photos.example/\ta.jpg",
        "https://photos.example/a\u3000.jpg",
        "https://photos.example/\x00.jpg",
        "https://photos.example/\ud800.jpg",
        "cloud://",
        "cloud://env",
        "cloud://env/",
        "cloud:///photos/1.jpg",
        "https://photos.example/" + "a" * 2048,
        None,
        1,
        {"url": PHOTO},
    ],
)
def test_any_other_address_is_refused_and_pointed_at(url: Any) -> None:
    assert pointers({"images": [PHOTO, url]}) == ["/images/1"]


@pytest.mark.parametrize("count", [1, 9, 500])
def test_one_to_five_hundred_pictures_may_be_asked_for(count: int) -> None:
    assert submit(a_body(params={"count": count})).count == count


@pytest.mark.parametrize("count", [0, -1, 501, 10**30, 9.0, 9.5, 1e999, "9", True, [9]])
def test_any_other_number_of_pictures_is_refused(count: Any) -> None:
    body = json.dumps(a_body(params={"count": count})).replace("Infinity", "1e999")
    with pytest.raises(Problem) as refused:
        parse(TaskIn, REQUEST, body.encode())
    assert [field.pointer for field in refused.value.fields] == ["/params/count"]


TEXTS = [
    # where, how long at most
    (("userId",), 128),
    (("prompt",), 2000),
    (("params", "scene"), 100),
    (("params", "style"), 100),
    (("params", "background"), 200),
    (("params", "color"), 100),
]


def with_text(path: tuple[str, ...], text: Any) -> dict[str, Any]:
    return a_body(**{path[0]: text} if len(path) == 1 else {path[0]: {path[1]: text}})


@pytest.mark.parametrize(("path", "most"), TEXTS)
def test_a_text_may_be_as_long_as_its_limit_and_no_longer(path: tuple[str, ...], most: int) -> None:
    assert submit(with_text(path, "衣" * most))
    ((pointer, message),) = refusal(with_text(path, "衣" * (most + 1)))
    assert pointer == "/" + "/".join(path)
    assert str(most) in message


@pytest.mark.parametrize(("path", "most"), [*TEXTS, (("callbackUrl",), 2048)])
@pytest.mark.parametrize("text", ["a\x00b", "\ud83d", "\udc00\ud800", 1, ["a"], {"a": 1}, True])
def test_a_text_that_cannot_be_stored_is_refused(path: tuple[str, ...], most: int, text: Any) -> None:
    assert pointers(with_text(path, text)) == ["/" + "/".join(path)]


def test_an_emoji_that_is_spelt_as_two_escapes_is_one_good_character() -> None:
    body = b'{"images": ["' + PHOTO.encode() + b'"], "prompt": "\\ud83d\\ude00"}'
    assert parse(TaskIn, REQUEST, body).prompt == "😀"


def test_an_empty_user_is_refused() -> None:
    assert pointers(a_body(userId="")) == ["/userId"]


def test_a_callback_address_has_a_limit() -> None:
    assert pointers(a_body(callbackUrl="https://hooks.example/" + "a" * 2048)) == ["/callbackUrl"]


@pytest.mark.parametrize("ratio", ["1:1", "2:3", "3:2", "3:4", "4:3", "9:16", "16:9", "21:9"])
def test_the_models_aspect_ratios_are_taken(ratio: str) -> None:
    assert submit(a_body(params={"aspectRatio": ratio})).params.aspect_ratio == ratio


@pytest.mark.parametrize("ratio", ["", "1:2", "1：1", "16/9", 1, None])
def test_any_other_aspect_ratio_is_refused(ratio: Any) -> None:
    assert pointers(a_body(params={"aspectRatio": ratio})) == ["/params/aspectRatio"]


@pytest.mark.parametrize("model", ["", "a" * 101, "a/b", "../x", "a b", "模型", "model\n", 1])
def test_a_model_that_could_not_be_a_name_is_refused(model: Any) -> None:
    assert pointers(a_body(model=model)) == ["/model"]


@pytest.mark.parametrize("priority", [-1, 10, 1.0, "1", True, None])
def test_a_priority_outside_zero_to_nine_is_refused(priority: Any) -> None:
    assert pointers(a_body(priority=priority)) == ["/priority"]


@pytest.mark.parametrize("value", [0, 1, "false", None])
def test_whether_the_cache_may_answer_is_yes_or_no(value: Any) -> None:
    assert pointers(a_body(promptCache=value)) == ["/promptCache"]


@pytest.mark.parametrize(
    ("extra", "pointer"),
    [
        ({"image": PHOTO}, "/image"),
        ({"count": 9}, "/count"),  # belongs into params
        ({"user_id": "openid-1"}, "/user_id"),  # the wire is camelCase
        ({"params": {"sceen": "商业摄影"}}, "/params/sceen"),
        ({"params": {"aspect_ratio": "1:1"}}, "/params/aspect_ratio"),
        ({"a/b~c": 1}, "/a~1b~0c"),
        ({"__proto__": {}}, "/__proto__"),
        ({"": 1}, "/"),
        ({"status": "completed"}, "/status"),  # nobody finishes a task by asking
    ],
)
def test_an_unknown_field_is_refused_and_pointed_at(extra: dict[str, Any], pointer: str) -> None:
    ((found, message),) = refusal(a_body(**extra))
    assert found == pointer
    assert message.startswith("不认识的字段")


def test_a_field_name_that_is_not_unicode_is_refused() -> None:
    assert refusal(a_body(**{"\ud800": 1}))
    assert refusal(a_body(apiPayload={"\ud800": 1}))


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"temperature": 3}, "apiPayload.temperature"),
        ({"tools": []}, "apiPayload.tools"),
        ({"safetySettings": [{"category": "X", "threshold": "OFF"}]}, "apiPayload.safetySettings.0"),
    ],
)
def test_a_model_setting_that_would_fail_later_is_refused_now(payload: Any, said: str) -> None:
    ((pointer, message),) = refusal(a_body(apiPayload=payload))
    assert pointer == "/apiPayload"
    assert said in message


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_objects_are_objects(value: Any) -> None:
    assert pointers(a_body(params=value)) == ["/params"]
    assert pointers(a_body(apiPayload=value)) == ["/apiPayload"]


def test_all_faults_are_told_at_once() -> None:
    body = {"images": ["x", PHOTO, "y"], "mode": "?", "params": {"count": 0, "scene": 1}, "extra": 1}
    assert set(pointers(body)) == {
        "/images/0",
        "/images/2",
        "/mode",
        "/params/count",
        "/params/scene",
        "/extra",
    }


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    told = refusal(a_body(prompt=["private words"], userId="private" * 40, callbackUrl=["private"]))
    assert "private" not in str(told)


def test_a_request_has_one_fingerprint_however_it_is_spelt() -> None:
    plain = submit(a_body(prompt="é", mode="normal", params={"scene": "a", "style": "b"}))
    other = f'{{"params":{{"style":"b","scene":"a"}},\n "prompt":"\\u00e9", "images":["{PHOTO}"]}}'
    assert parse(TaskIn, REQUEST, other.encode()).fingerprint() == plain.fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"images": [PHOTO, f"{PHOTO}?2"]},
        {"mode": "photo_set"},
        {"prompt": "other"},
        {"params": {"scene": "other"}},
        {"params": {"count": 2}},
        {"priority": 1},
        {"apiPayload": {"seed": 1}},
        {"callbackUrl": "https://hooks.example/"},
        {"userId": "openid-2"},
        {"model": "other"},
        {"promptCache": False},
    ],
)
def test_another_request_has_another_fingerprint(changes: dict[str, Any]) -> None:
    assert submit(a_body(**changes)).fingerprint() != submit(a_body()).fingerprint()


def test_the_order_of_photos_is_part_of_a_request() -> None:
    one, two = f"{PHOTO}?1", f"{PHOTO}?2"
    assert submit({"images": [one, two]}).fingerprint() != submit({"images": [two, one]}).fingerprint()


@pytest.mark.parametrize("body", [{}, {"code": ""}, {"code": "x" * 257}, {"code": 1}, {"code": "a", "b": 1}])
def test_a_login_without_a_usable_code_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(Problem, match="INVALID_REQUEST"):
        parse(SessionIn, REQUEST, json.dumps(body).encode())


def a_task(**changes: Any) -> Task:
    return Task(
        **{
            "task_id": "task_1",
            "user_id": "openid-1",
            "mode": "photo_set",
            "images": (PHOTO,),
            "params": Params(scene="商业摄影", count=3),
            "prompt": "",
            "model": "gemini-2.5-flash-image",
            "api_payload": {},
            "priority": 0,
            "callback_url": "",
            "status": Status.PROCESSING,
            "total": 3,
            "trace_id": "0" * 31 + "1",
            "idempotency_key": "a-private-key",
            "created_at": NOON,
            "updated_at": NOON,
            "deadline": NOON + timedelta(minutes=30),
            "expire_at": NOON + timedelta(days=30),
            **changes,
        }
    )


def a_stored_shot(index: int) -> Shot:
    result = Result(
        url=f"https://cos.example/{index}.webp?sign=1",
        cos_key=f"private/{index}.webp",
        sha256="0" * 64,
        width=768,
        height=1024,
        timestamp=NOON,
    )
    return Shot(
        index=index,
        status=Status.COMPLETED,
        result=result.to_document(),
        attempts=1,
        keys_used=("key1", "key2"),
    )


def a_failed_shot(index: int) -> Shot:
    error = {"code": "TIMEOUT", "message": "No answer came in time.", "timestamp": NOON, "retry": 3}
    return Shot(index=index, status=Status.FAILED, errors=(error,), attempts=4, keys_used=("key1",))


def test_an_accepted_task_says_where_to_look() -> None:
    assert accepted("task_1", "pending", 9) == {
        "taskId": "task_1",
        "status": "pending",
        "total": 9,
        "links": {"self": "/tasks/task_1", "events": "/tasks/task_1/events"},
    }


def test_a_line_of_a_list_tells_what_a_task_is_and_how_it_stands() -> None:
    line = summary(a_task())
    assert (line["taskId"], line["status"], line["mode"], line["total"]) == (
        "task_1",
        "processing",
        "photo_set",
        3,
    )
    assert line["params"]["scene"] == "商业摄影"
    assert line["createdAt"] == "2025-10-13T12:00:00.000Z"


def test_progress_and_counts_agree_with_the_shots() -> None:
    shots = [a_stored_shot(0), a_failed_shot(1), Shot(index=2, status=Status.PENDING)]
    shown = show(a_task(), shots)
    assert shown["progress"] == 1 / 3
    assert shown["counts"] == {
        "pending": 1,
        "processing": 0,
        "completed": 1,
        "failed": 1,
        "cancelled": 0,
        "total": 3,
    }


def test_results_have_the_seeds_shape_and_errors_theirs() -> None:
    """A-034, A-035."""
    shown = show(a_task(), [a_stored_shot(0), a_failed_shot(1)])
    (result,) = shown["results"]
    (error,) = shown["errors"]
    assert (result["index"], result["timestamp"]) == (0, "2025-10-13T12:00:00.000Z")
    assert result["url"].startswith("https://cos.example/0.webp")
    assert error == {
        "index": 1,
        "code": "TIMEOUT",
        "message": "No answer came in time.",
        "timestamp": "2025-10-13T12:00:00.000Z",
        "retry": 3,
    }


def test_a_task_whose_photos_failed_says_so_once_and_not_once_per_shot() -> None:
    error = {"code": "SOURCE_UNAVAILABLE", "message": "gone", "timestamp": NOON, "retriable": False}
    shots = [Shot(index=index, status=Status.FAILED, errors=(error,)) for index in range(3)]
    task = a_task(status=Status.FAILED, errors=(error,), plan=Plan(state=PlanState.FAILED))
    assert [found["code"] for found in show(task, shots)["errors"]] == ["SOURCE_UNAVAILABLE"]


@pytest.mark.parametrize(
    ("shot", "plan", "stage"),
    [
        (Shot(index=0, status=Status.PENDING), PlanState.NONE, "waiting"),
        (Shot(index=0, status=Status.PENDING), PlanState.PREPARING, "preparing"),
        (Shot(index=0, status=Status.PENDING), PlanState.READY, "waiting"),
        (Shot(index=0, status=Status.PROCESSING), PlanState.READY, "drawing"),
        (a_stored_shot(0), PlanState.READY, "stored"),
        (a_failed_shot(0), PlanState.READY, "failed"),
        (Shot(index=0, status=Status.CANCELLED), PlanState.READY, "cancelled"),
    ],
)
def test_a_shot_is_at_one_stage(shot: Shot, plan: PlanState, stage: str) -> None:
    assert show(a_task(plan=Plan(state=plan)), [shot])["shots"][0]["stage"] == stage


def test_a_shot_shows_the_key_it_is_drawn_with_or_was_drawn_with_last() -> None:
    claim = Claim(token="t", until=NOON, key_id="key3")
    drawing = Shot(index=0, status=Status.PROCESSING, claim=claim, keys_used=("key1",))
    shown = show(a_task(), [drawing, a_stored_shot(1), Shot(index=2, status=Status.PENDING)])
    assert [shot["keyId"] for shot in shown["shots"]] == ["key3", "key2", None]


def test_an_owner_is_not_shown_what_only_the_system_needs() -> None:
    claim = Claim(token="fencing-token", until=NOON, key_id="key3")
    drawing = Shot(index=1, status=Status.PROCESSING, claim=claim)
    text = json.dumps(show(a_task(), [a_stored_shot(0), drawing]))
    assert "a-private-key" not in text
    assert "fencing-token" not in text
    assert "cosKey" not in text


def test_a_shown_task_is_json_with_the_seeds_time_marks() -> None:
    marks = {"processingStartedAt": NOON, "promptGeneratedAt": None}
    shown = json.loads(json.dumps(show(a_task(marks=marks), [])))
    assert shown["processingStartedAt"] == "2025-10-13T12:00:00.000Z"
    assert shown["promptGeneratedAt"] is None


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (NOON, "2025-10-13T12:00:00.000Z"),
        (NOON + timedelta(microseconds=123_456), "2025-10-13T12:00:00.123Z"),
    ],
)
def test_times_are_written_in_utc_with_milliseconds(moment: datetime, text: str) -> None:
    assert iso(moment) == text
