"""The judge's server: busy, down, wrong, slow - each ends in a reply or in one sentence."""

from __future__ import annotations

import json
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from chat_fake import Answer, chat_server

from kltune.errors import EnvironmentMissingError, ServiceError
from kltune.rewards.chat_server import ChatServer, UnfitRequestError
from kltune.spec.judge import JudgeSpec

ASKED = [{"role": "user", "content": "hello"}]


def server(url: str, waits: list[float] | None = None, **fields: object) -> ChatServer:
    spec = JudgeSpec.model_validate({"judge": "m", "url": url, "timeout": 5, **fields})
    return ChatServer(spec, "task.gold", [].append if waits is None else waits.append)


def test_a_reply_comes_with_its_tokens() -> None:
    with chat_server(lambda text: f"Score: {len(text)}") as chat:
        reply = server(chat.url, max_tokens=7).ask(ASKED)
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("Score: 5", 100, 10)
    (body,) = chat.asked
    assert body == {"model": "m", "messages": ASKED, "temperature": 0.0, "max_tokens": 7}
    assert chat.keys == [None]


def test_tokens_are_estimated_where_the_server_does_not_count() -> None:
    text = json.dumps({"choices": [{"message": {"content": "12345678"}}]})
    with chat_server(lambda _: (200, text)) as chat:
        reply = server(chat.url).ask(ASKED)
    assert reply.tokens_out == 2
    assert reply.tokens_in > 10


def test_a_busy_server_is_asked_again_after_longer_and_longer_waits_each_of_which_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[Answer] = [
        (429, "{}"), (503, "oops"), (200, "no json"), (429, "{}", {"Retry-After": "3600"}),
        (429, "{}", {"Retry-After": "25"}), "fine",
    ]  # fmt: skip
    waits: list[float] = []
    with chat_server(lambda _: answers.pop(0)) as chat:
        assert server(chat.url, waits).ask(ASKED).text == "fine"
    assert waits == [1, 2, 4, 60, 25]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 5
    assert said[3].endswith("(HTTP 429: {}; it asks to wait 3600 s); try 5 of 6 in 60 s")


def test_a_wait_until_a_date_is_read_and_told_with_the_failure() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=31), usegmt=True)
    waits: list[float] = []
    busy: Answer = (503, "later", {"Retry-After": date})
    told = pytest.raises(
        ServiceError, match=r"2 attempt\(s\), after 3\d s of waiting \(.* wait 3\d s"
    )
    with chat_server(lambda _: busy) as chat, told:
        server(chat.url, waits, retries=1).ask(ASKED)
    assert 25 < waits[0] <= 31


@pytest.mark.parametrize("body", ["<html>" + "x" * 200, "{}", '{"choices": []}', "[1]"])
def test_an_answer_that_is_no_chat_completion_is_asked_for_once_more_alone(body: str) -> None:
    waits: list[float] = []
    with chat_server(lambda _: (200, body)) as chat:
        with pytest.raises(ServiceError, match=r"is no chat server: .*check url") as told:
            server(chat.url, waits).ask(ASKED)
        assert len(chat.asked) == 2
    assert waits == [1]
    assert repr(body[:80]) in str(told.value)
    assert body[:81] not in str(told.value) or len(body) <= 80


def test_a_server_that_is_down_is_named_with_what_to_do() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, so that nobody else takes it; nobody listens
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        with pytest.raises(
            ServiceError,
            match=r"task\.gold: the judge at .* 3 attempt.*refused.*run the same command again",
        ):
            server(url, retries=2).ask(ASKED)


def test_a_server_that_says_nothing_is_left_after_the_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        start = time.monotonic()
        with pytest.raises(ServiceError, match=r"no reply within 0\.2 s"):
            server(url, retries=0, timeout=0.2).ask(ASKED)
        assert time.monotonic() - start < 3


def test_a_wrong_key_is_not_tried_again_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-secret-1")
    said = json.dumps({"error": {"message": "bad key sk-secret-1"}})
    told = pytest.raises(ServiceError, match=r"HTTP 401: bad key \*\*\*.*key_env")
    with chat_server(lambda _: (401, said)) as chat, told as caught:
        server(chat.url, key_env="JUDGE_KEY").ask(ASKED)
    assert chat.keys == ["Bearer sk-secret-1"]
    assert "sk-secret-1" not in str(caught.value)


def test_the_key_is_missed_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(
        EnvironmentMissingError, match=r"task\.gold\.key_env: .* JUDGE_KEY is not set"
    ):
        server("http://127.0.0.1:9/v1", key_env="JUDGE_KEY")


def test_a_redirect_is_not_followed_since_it_would_take_the_key_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-secret-1")
    with chat_server(lambda _: "reached") as other:
        moved: Answer = (302, "", {"Location": f"{other.url}/chat/completions"})
        with chat_server(lambda _: moved) as chat, pytest.raises(ServiceError, match="HTTP 302"):
            server(chat.url, key_env="JUDGE_KEY").ask(ASKED)
    assert other.keys == []


def test_a_request_that_the_server_will_not_take_is_told_apart() -> None:
    told = pytest.raises(UnfitRequestError, match="HTTP 400: too long")
    with chat_server(lambda _: (400, "too long")) as chat, told:
        server(chat.url).ask(ASKED)
