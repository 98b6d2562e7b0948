"""What a judge said is kept, shared among processes, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import ServiceError
from kltune.metrics.jsonl import read_rows
from kltune.rewards.chat_server import Reply
from kltune.rewards.judge_record import JudgeRecord
from kltune.spec.judge import BudgetSpec, JudgeSpec

SPEC = JudgeSpec(judge="m", url="http://localhost/v1", price_in=1000.0, price_out=2000.0)
FIRST = [{"role": "user", "content": "one \ud83d"}]
OTHER = [{"role": "user", "content": "two"}]


def limited(path: Path | None = None, **budget: float) -> JudgeRecord:
    spec = SPEC.model_copy(update={"budget": BudgetSpec.model_validate(budget)})
    return JudgeRecord(spec, "task.gold", path)


def ask(record: JudgeRecord, text: str = "Score: 5") -> None:
    record.begin()
    record.end(FIRST, Reply(text, 1000, 500))


def test_another_process_finds_what_this_one_was_told(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "judge.jsonl"
    one, other = limited(path), limited(path)
    assert other.find(FIRST) is None
    ask(one)
    assert other.find(FIRST) == "Score: 5"
    assert other.find(OTHER) is None
    assert (other.calls, other.tokens, other.money) == (1, 1500, 2.0)
    assert read_rows(path)[0]["judge"] == "m"


def test_another_model_or_temperature_is_another_question() -> None:
    record = limited()
    ask(record)
    for change in ({"judge": "n"}, {"temperature": 1.0}, {"max_tokens": 3}):
        other = JudgeRecord(SPEC.model_copy(update=change), "task.gold", None)
        other._replies = record._replies
        assert other.find(FIRST) is None
    assert record.find(FIRST) == "Score: 5"


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"calls": 1}, r"1 call\(s\)"),
        ({"tokens": 1500}, "1500 tokens"),
        ({"money": 2.0}, "2 in money"),
    ],
)
def test_a_spent_budget_stops_the_next_request(budget: dict[str, float], said: str) -> None:
    record = limited(**budget)
    ask(record)
    with pytest.raises(ServiceError, match=f"task.gold.budget: the judge's {said} are spent"):
        record.begin()
    assert record.find(FIRST) == "Score: 5"


def test_a_request_under_way_counts_and_one_that_failed_does_not() -> None:
    record = limited(calls=1)
    record.begin()
    with pytest.raises(ServiceError):
        record.begin()
    record.end(FIRST, None)
    record.begin()


def test_what_was_said_before_the_study_was_there_goes_into_it_too(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    other = limited(path)
    record = limited()
    ask(record, "early")
    assert not path.exists()
    other.begin()
    other.end(OTHER, Reply("from another process", 1, 1))
    record.keep_in(path)
    assert (record.find(FIRST), record.find(OTHER)) == ("early", "from another process")
    assert record.calls == other.calls + 1 == 2
    record.keep_in(tmp_path / "elsewhere.jsonl")  # it has a place
    assert not (tmp_path / "elsewhere.jsonl").exists()
    assert limited(path).find(FIRST) == "early"
