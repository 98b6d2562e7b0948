"""Code is judged by its tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.sandbox import Finished
from kltune.rewards.verifiers import unit_tests
from kltune.rewards.verifiers.unit_tests import CodeVerifier, code_of
from kltune.spec.verifiers import CodeVerifierSpec
from kltune.tasks.protocol import Prompt, Sample

PROMPT = Prompt("p", "add", {"tests": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]})
RIGHT = "def add(a, b):\n    return a + b"
HALF = "def add(a, b):\n    return 3"


def verifier(*prompts: Prompt, **fields: Any) -> CodeVerifier:
    spec = CodeVerifierSpec.model_validate({"verifier": "code", **fields})
    return CodeVerifier(spec, RewardContext("task.gold", Path, prompts))


def samples(*texts: str, prompt: Prompt = PROMPT) -> list[Sample]:
    return [Sample(prompt, text, (), True) for text in texts]


def test_the_score_is_the_share_of_tests_or_all_of_them() -> None:
    texts = (f"Sure!\n```python\n{RIGHT}\n```\nThat adds.", HALF, "no code at all", "")
    assert verifier(PROMPT)(samples(*texts)) == [1, 0.5, 0, 0]
    assert verifier(PROMPT, score="all", parallel=2)(samples(*texts)) == [1, 0, 0, 0]


def test_code_that_leaves_before_its_tests_has_not_passed_them() -> None:
    assert verifier(PROMPT)(samples("import sys; sys.exit(0)")) == [0]


@pytest.mark.parametrize("tests", ["assert add(1, 1) == 2", '["assert add(1, 1) == 2"]'])
def test_one_test_may_be_text_and_a_list_may_come_as_json(tests: str) -> None:
    prompt = Prompt("p", "add", {"tests": tests})
    assert verifier(prompt)(samples(RIGHT, prompt=prompt)) == [1]


def test_code_is_what_is_fenced_also_where_the_fence_is_cut() -> None:
    assert code_of("a\n```py\nx = 1\n```\nb\n```\ny = 2\n```") == "x = 1\n\n\ny = 2\n"
    assert code_of("a\n```python\nx = 1") == "x = 1"
    assert code_of("x = 1") == "x = 1"


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("assert (", "a test of prompt 'p' is no Python"),
        ([], "must hold Python text or a list of it"),
        ([1], "must hold Python text or a list of it"),
        (None, r"needs the column\(s\) tests"),
    ],
)
def test_wrong_tests_are_named_before_anything_runs(tests: object, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        verifier(Prompt("p", "add", {"tests": tests}))


def test_a_system_that_can_not_confine_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unit_tests, "run_program", lambda *_: Finished(True, "", ("no seccomp",)))
    made = verifier(PROMPT)
    made(samples(RIGHT))
    made(samples(HALF))
    assert caplog.text.count("this system can't confine code fully: no seccomp") == 1


def test_as_many_tests_run_at_once_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    plain = unit_tests.ThreadPoolExecutor

    def pool(at_once: int, **names: str) -> ThreadPoolExecutor:
        asked.append(at_once)
        return plain(at_once, **names)

    monkeypatch.setattr(unit_tests, "ThreadPoolExecutor", pool)
    monkeypatch.setattr(unit_tests.os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert verifier(PROMPT)(samples("pass")) == verifier(PROMPT, parallel=1)(samples("pass"))
    assert asked == [3, 1]
