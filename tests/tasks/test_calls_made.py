from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kltune.errors import RunError, SpecError
from kltune.spec.rewards import RewardSpec
from kltune.spec.task import TaskSpec
from kltune.tasks.calls_made import PendingScorer, ScorerMaker, function_scorers, made
from kltune.tasks.calls_weighted import WeightedScorer
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import FunctionScorer

SOURCE = "def a(completions, **_): return [1.0] * len(completions)\ndef b(completions, need): ...\n"
ONE = [Sample(Prompt("p", "q"), "x", (1,), True)]


def maker(folder: Path, proxy: Any = "r.py:a", **task: Any) -> tuple[ScorerMaker, Any]:
    (folder / "r.py").write_text(SOURCE, encoding="utf-8")
    spec = TaskSpec.model_validate({"prompts": "p.jsonl", "gold": "r.py:a", "proxy": proxy, **task})
    return ScorerMaker(spec, ("answer",), lambda text: folder / text), spec.proxy


def test_a_function_has_the_tasks_limits(tmp_path: Path) -> None:
    make, proxy = maker(tmp_path, timeout="30s", errors={"action": "skip", "share": 0.2})
    scorer = make.of("proxy", proxy, 0.2)
    assert isinstance(scorer, FunctionScorer)
    assert (scorer.limits.seconds, scorer.limits.error_share, scorer.child) == (30.0, 0.2, None)


def test_an_isolated_function_is_called_in_a_child(tmp_path: Path) -> None:
    make, proxy = maker(tmp_path, isolate=True)
    scorer = make.of("proxy", proxy)
    assert isinstance(scorer, FunctionScorer)
    assert scorer.child is not None
    assert scorer(ONE) == [1.0]
    scorer.child.close()


def test_a_weighted_sum_holds_functions_and_pending_rewards(tmp_path: Path) -> None:
    parts = [{"function": "r.py:a", "weight": 2.0}, {"verifier": "math", "weight": 1.0}]
    make, proxy = maker(tmp_path, {"weighted": parts})
    scorer = make.of("proxy", proxy)
    assert isinstance(scorer, WeightedScorer)
    assert [f.name for f in function_scorers(scorer)] == ["r.py:a"]
    pending = scorer.parts[1].scorer
    assert isinstance(pending, PendingScorer)
    assert pending.field == "task.proxy.weighted.1"
    with pytest.raises(RunError, match="not ready"):
        pending(ONE)
    asked: list[str] = []

    class Ready:
        name = "ready"

        def __call__(self, samples: Sequence[Sample]) -> list[float]:
            return [5.0] * len(samples)

    def make_reward(field: str, spec: RewardSpec) -> Ready:
        asked.append(field)
        return Ready()

    assert made(scorer, make_reward)(ONE) == [7.0]
    assert asked == ["task.proxy.weighted.1"]


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("r.py:b", r"^task\.proxy: scorer r\.py:b needs the column\(s\) need"),
        ({"weighted": ["r.py:a", "r.py:b"]}, r"^task\.proxy\.weighted\.1: scorer r\.py:b needs"),
        (
            {"verifier": "math", "answer": "truth"},
            r"^task\.proxy: needs the column\(s\) truth, .*: answer$",
        ),
    ],
)
def test_a_column_that_lacks_is_told_by_field(tmp_path: Path, proxy: Any, said: str) -> None:
    make, spec = maker(tmp_path, proxy)
    with pytest.raises(SpecError, match=said):
        make.of("proxy", spec)


def test_the_fingerprint_of_recorded_scores_is_that_of_the_file(tmp_path: Path) -> None:
    make, spec = maker(tmp_path, {"recorded": "s.jsonl"})
    prints: list[str] = []
    for text in ("1", "2"):
        (tmp_path / "s.jsonl").write_text(text, encoding="utf-8")
        scorer = make.of("proxy", spec)
        assert isinstance(scorer, PendingScorer)
        prints.append(scorer.fingerprint)
    assert prints[0] != prints[1]
