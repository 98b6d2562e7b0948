"""The verifier of mathematics as a scorer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.verifiers.mathematics import MathVerifier
from kltune.spec.verifiers import MathVerifierSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import ScorerError

pytest.importorskip("math_verify")


def verifier(*prompts: Prompt, **fields: Any) -> MathVerifier:
    spec = MathVerifierSpec.model_validate({"verifier": "math", **fields})
    return MathVerifier(spec, RewardContext("task.gold", Path, prompts))


def test_a_gsm8k_answer_is_what_comes_after_the_last_mark() -> None:
    prompt = Prompt("p", "how many?", {"answer": "3 + 4 = 7\n#### 1,007"})
    made = verifier(prompt, answer_after="####")
    texts = ("#### 1007", "7", r"\boxed{1007}", "7")
    assert made([Sample(prompt, t, (), True) for t in texts]) == [1, 0, 1, 0]


def test_a_text_that_can_not_be_compared_in_time_is_wrong_and_counted() -> None:
    prompt = Prompt("p", "?", {"answer": 3})
    made = verifier(prompt, timeout=1)
    assert made([Sample(prompt, t, (), True) for t in ("$9^{9^{9^{9}}}$", "3")]) == [0, 1]
    assert made.ended == 1


def test_a_prompt_without_an_answer_is_named_before_anything_runs() -> None:
    with pytest.raises(
        SpecError, match=r"prompt 'p' has no answer after '####' in its column 'answer' \('7'\)"
    ):
        verifier(Prompt("p", "?", {"answer": "7"}), answer_after="####")
    with pytest.raises(SpecError, match=r"needs the column\(s\) truth"):
        verifier(Prompt("p", "?", {"answer": "7"}), answer="truth")


@pytest.mark.parametrize("answer", [["7"], {"a": 7}, True])
def test_an_answer_that_is_neither_text_nor_number_is_named(answer: object) -> None:
    with pytest.raises(
        SpecError, match=r"column 'answer' of prompt 'p' must hold text or a number"
    ):
        verifier(Prompt("p", "?", {"answer": answer}))


def test_a_right_answer_that_is_no_mathematics_is_named() -> None:
    late = Prompt("p", "?", {"answer": ""})  # of a prompt that was not there when it was made
    with pytest.raises(ScorerError, match=r"can't read the right answer '' of prompt 'p'"):
        verifier()([Sample(late, "3", (), True)])


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentMissingError, match=r"pip install 'kltune\[verifiers\]'"):
        verifier()
