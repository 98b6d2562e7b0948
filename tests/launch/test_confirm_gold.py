"""A second gold that can't judge is known before the first run, under the limits of the spec."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from fake_study import trial, write_study

from kltune.errors import SpecError
from kltune.launch.confirm_gold import second_gold
from kltune.metrics.jsonl import append_rows, read_rows
from kltune.report.rows import read_study
from kltune.spec.task import LearnedProxySpec
from kltune.tasks.protocol import Prompt, Splits
from kltune.tasks.registry import Task
from kltune.tasks.scorers import FunctionScorer

TASK: dict[str, Any] = {"prompts": "p.jsonl", "gold": "m:good", "proxy": "m:near"}
GOLDS = """
import time

def fine(prompts, completions):
    return [float(len(c)) for c in completions]

def raises(prompts, completions):
    return [1.0 / (0 if "boil" in c else 1) for c in completions]

def wrong(prompts, completions):
    return [1.0]

def skips(prompts, completions):
    return [None for _ in completions]

def slow(prompts, completions):
    time.sleep(5)

def no_thought(prompts, completions):
    assert not any("hm" in c for c in completions), completions
    return [0.0 for _ in completions]
"""


class _Other:
    name = "other"

    def __call__(self, samples: object) -> list[float]:
        raise AssertionError(samples)


_other = _Other()


def judged(folder: Path, name: str, *, keeps: bool = True, **spec: Any) -> FunctionScorer | None:
    """The second gold ``name`` of a study whose completions hold the word boil, unless none is kept."""
    (folder / "golds.py").write_text(GOLDS, encoding="utf-8")
    study = read_study(write_study(folder / "study", [trial(0.1)], **{"task": TASK, **spec}))
    (kept,) = (folder / "study").glob("trials/*/samples.jsonl")
    (row, *_) = read_rows(kept)
    kept.unlink()
    if keeps:
        append_rows(
            kept,
            [{**row, "prompt_id": f"p{i}", "completion": "hm </t> boil"} for i in range(2)],
        )
    prompts = tuple(Prompt(f"p{i}", f"How long {i}?") for i in range(3))
    task = Task("t", Splits(prompts, prompts, prompts), _other, LearnedProxySpec(), {})
    return second_gold(f"{folder / 'golds.py'}:{name}", task, study)


def test_none_that_was_asked_for_is_none(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", [trial(0.1)]))
    task = Task("t", Splits((), (), ()), _other, LearnedProxySpec(), {})
    assert second_gold(None, task, study) is None


def test_one_that_scores_what_was_kept_is_taken_with_the_specs_limits(tmp_path: Path) -> None:
    found = judged(tmp_path, "fine", task={**TASK, "timeout": "7s", "isolate": True})
    assert found is not None
    assert found.limits.seconds == 7.0
    assert found.child is not None
    plain = judged(tmp_path, "fine")
    assert plain is not None
    assert plain.child is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised ZeroDivisionError"),
        ("wrong", "returned 1 score"),
        ("skips", "a gold must score all"),
    ],
)
def test_one_that_fails_on_what_was_kept_is_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(SpecError, match=rf"^--gold: .*{words}"):
        judged(tmp_path, name)


def test_one_that_hangs_is_refused_after_the_specs_own_time(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(SpecError, match=r"--gold: .* did not come back within 0.2 s"):
        judged(tmp_path, "slow", task={**TASK, "timeout": 0.2})
    assert time.monotonic() - began < 3.0


def test_it_sees_answers_and_no_thoughts(tmp_path: Path) -> None:
    model = {"base": "builtin:kitchen", "answer_after": "</t>"}
    assert judged(tmp_path, "no_thought", model=model) is not None
    with pytest.raises(SpecError, match="AssertionError"):
        judged(tmp_path, "no_thought")


def test_harmless_texts_stand_in_where_nothing_was_kept(tmp_path: Path) -> None:
    assert judged(tmp_path, "raises", keeps=False) is not None
    with pytest.raises(SpecError, match="returned 1 score"):
        judged(tmp_path, "wrong", keeps=False)
