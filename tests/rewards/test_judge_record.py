"""What a judge said is kept, shared among processes, and counted."""

from __future__ import annotations

import fcntl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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
    record.end(record.begin(FIRST), FIRST, Reply(text, 1000, 500))


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
        record.begin(OTHER)
    assert record.find(FIRST) == "Score: 5"


def test_a_request_waits_for_the_one_under_way_and_one_that_failed_took_nothing() -> None:
    record = limited(calls=1)
    first = record.begin(FIRST)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(record.begin, OTHER)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.3)
        record.end(first, FIRST, None)
        assert second.result(timeout=5.0) != first


def test_many_at_once_in_two_processes_records_never_pass_a_budget(tmp_path: Path) -> None:
    # Each request takes 300 to 700 of 10,000 tokens and has room for 15 + 32 + 700.
    spec = SPEC.model_copy(update={"budget": BudgetSpec(tokens=10_000), "max_tokens": 700})
    records = [JudgeRecord(spec, "task.gold", tmp_path / "judge.jsonl") for _ in range(2)]
    asked, refusals, lock = list[int](), list[str](), threading.Lock()

    def one(number: int) -> bool:
        messages = [{"role": "user", "content": f"question {number:06d}"}]
        record = records[number % 2]
        try:
            claim = record.begin(messages)
        except ServiceError as error:
            refusals.append(str(error))
            return False
        with lock:
            asked.append(number)
        time.sleep(0.002)
        record.end(claim, messages, Reply("Score: 1", 10, 290 + 57 * (number % 8)))
        return True

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(one, range(60)))
    assert 14 <= sum(done) == len(asked) < 60
    assert all(
        "task.gold.budget: the next request may take up to 747 tokens" in r for r in refusals
    )
    fresh = JudgeRecord(spec, "task.gold", tmp_path / "judge.jsonl")
    assert fresh.find(FIRST) is None
    assert 10_000 - 747 < fresh.tokens <= 10_000


def test_while_another_process_claims_nobody_else_does(tmp_path: Path) -> None:
    record = limited(tmp_path / "judge.jsonl", calls=9)
    with (tmp_path / "judge.lock").open("w") as held, ThreadPoolExecutor(1) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        claim = pool.submit(record.begin, FIRST)
        with pytest.raises(TimeoutError):
            claim.result(timeout=0.3)
        fcntl.flock(held, fcntl.LOCK_UN)
        assert claim.result(timeout=5.0)


def test_room_of_a_process_that_died_is_free_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "judge.jsonl"
    limited(path, calls=1).begin(FIRST)  # and nothing more is heard of it
    later = time.time() + 3600
    monkeypatch.setattr("kltune.rewards.judge_record.time.time", lambda: later)
    limited(path, calls=1).begin(OTHER)


def test_what_was_said_before_the_study_was_there_goes_into_it_too(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    other = limited(path)
    record = limited()
    ask(record, "early")
    assert not path.exists()
    other.end(other.begin(OTHER), OTHER, Reply("from another process", 1, 1))
    record.keep_in(path)
    assert (record.find(FIRST), record.find(OTHER)) == ("early", "from another process")
    assert record.calls == other.calls + 1 == 2
    record.keep_in(tmp_path / "elsewhere.jsonl")  # it has a place
    assert not (tmp_path / "elsewhere.jsonl").exists()
    assert limited(path).find(FIRST) == "early"
