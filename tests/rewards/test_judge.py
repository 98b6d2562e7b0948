"""A judge over real HTTP as a scorer."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from chat_fake import Answer, chat_server

from kltune.errors import ServiceError
from kltune.rewards.context import RewardContext
from kltune.rewards.judge import JudgeScorer
from kltune.spec.judge import JudgeSpec
from kltune.tasks.protocol import Prompt, Sample


def samples(*texts: str) -> list[Sample]:
    return [Sample(Prompt("p", "say it", {"food": "soup"}), text, (), True) for text in texts]


def scorer(
    url: str, folder: Path | None = None, field: str = "task.gold", **more: object
) -> JudgeScorer:
    spec = JudgeSpec.model_validate({"judge": "m", "url": url, "retries": 0, "timeout": 5, **more})
    return JudgeScorer(spec, RewardContext(field, Path, folder=folder), lambda _: None)


def by_letters(text: str) -> Answer:
    """Scores the answer between the second pair of dashes by its number of x."""
    return f"Score: {text.split('-----')[3].count('x') + 1}"


def test_each_completion_gets_its_own_number_in_order() -> None:
    with chat_server(by_letters) as chat:
        scores = scorer(chat.url)(samples("xx", "", "x", "xx"))
    assert scores == [3, 1, 2, 3]
    assert len(chat.asked) == 3  # equal ones once


def test_a_second_session_asks_nothing_again(tmp_path: Path) -> None:
    with chat_server(by_letters) as chat:
        first = scorer(chat.url, tmp_path)(samples("x", "xx"))
        again = scorer(chat.url, tmp_path)
        assert again(samples("xx", "x")) == first[::-1]
    assert len(chat.asked) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["judge-gold.jsonl"]
    assert again.judge.record.calls == 2


def test_an_interrupted_batch_keeps_the_answers_that_came(tmp_path: Path) -> None:
    def breaks(text: str) -> Answer:
        return (403, "stop") if "xxx" in text else by_letters(text)

    with chat_server(breaks) as chat:
        with pytest.raises(ServiceError, match="HTTP 403"):
            scorer(chat.url, tmp_path, parallel=1)(samples("x", "xx", "xxx", "xxxx"))
        assert len(chat.asked) == 3  # what had not begun is not asked any more
        assert scorer(chat.url, tmp_path)(samples("x", "xx")) == [2, 3]
    assert len(chat.asked) == 3


def test_a_reply_without_a_number_is_asked_for_once_more() -> None:
    def hesitates(text: str) -> Answer:
        return "Score: 4" if text.startswith("Reply again") else "It is good."

    with chat_server(hesitates) as chat:
        assert scorer(chat.url)(samples("a")) == [4]
    assert [len(body["messages"]) for body in chat.asked] == [1, 3]


@pytest.mark.parametrize(
    ("field", "more", "score"),
    [
        ("task.gold", {}, 1.0),
        ("task.gold", {"scale": [0, 5]}, 0.0),
        ("task.proxy", {}, math.nan),
        ("task.proxy", {"unreadable": 3.5}, 3.5),
    ],
)
def test_no_number_at_all_counts_as_the_spec_says(
    field: str, more: dict[str, object], score: float, caplog: pytest.LogCaptureFixture
) -> None:
    with chat_server(lambda _: "no") as chat:
        made = scorer(chat.url, field=field, **more)
        assert made(samples("a")) == pytest.approx([score], nan_ok=True)
    assert made.judge.unreadable == 1
    assert "no answer that can be read to 1 question" in caplog.text


def test_a_text_that_the_server_will_not_take_is_unreadable_once_others_went_well() -> None:
    def picky(text: str) -> Answer:
        return (400, "context length") if "long" in text else "Score: 6"

    with chat_server(picky) as chat:
        made = scorer(chat.url, field="task.proxy")
        with pytest.raises(ServiceError, match="HTTP 400: context length"):
            made(samples("long"))
        assert made(samples("ok")) == [6]
        assert math.isnan(made(samples("long"))[0])


def test_a_budget_ends_it_with_what_to_do(tmp_path: Path) -> None:
    with chat_server(by_letters) as chat:
        made = scorer(chat.url, tmp_path, budget={"calls": 2}, parallel=4)
        with pytest.raises(ServiceError, match="budget"):
            made(samples("x", "xx", "xxx", "xxxx"))
        assert len(chat.asked) == 2
        more = scorer(chat.url, tmp_path, budget={"calls": 4})
        assert more(samples("x", "xx", "xxx", "xxxx")) == [2, 3, 4, 5]
    assert len(chat.asked) == 4


def test_where_the_server_stands_does_not_change_what_is_judged() -> None:
    one = scorer("http://127.0.0.1:1/v1")
    assert one.fingerprint == scorer("http://127.0.0.1:2/v1", parallel=2).fingerprint
    assert one.fingerprint != scorer("http://127.0.0.1:1/v1", scale=[0, 1]).fingerprint
