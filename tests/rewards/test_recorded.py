"""Recorded scores are looked up by prompt and completion."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.recorded import RecordedScorer
from kltune.spec.rewards import RecordedSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import ScorerError


def scorer(
    tmp_path: Path, rows: list[dict[str, object]], field: str, **more: object
) -> RecordedScorer:
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    spec = RecordedSpec.model_validate({"recorded": "s.jsonl", **more})
    return RecordedScorer(spec, RewardContext(field, tmp_path.joinpath))


def row(prompt: str, completion: str, score: object) -> dict[str, object]:
    return {"prompt": prompt, "completion": completion, "score": score}


def samples(*texts: str) -> list[Sample]:
    return [Sample(Prompt("p", "q "), text, (), True) for text in texts]


ROWS = [row("q", "a", 1), row("q", "b", "2.5"), row("other", "a", 9), row(" q", "a ", 2)]


def test_several_scores_of_one_pair_count_by_their_mean(tmp_path: Path) -> None:
    assert scorer(tmp_path, ROWS, "task.gold")(samples("b", " a")) == [2.5, 1.5]


def test_a_completion_that_is_not_there_is_unscored_and_counted(tmp_path: Path) -> None:
    made = scorer(tmp_path, ROWS, "task.proxy")
    scores = made(samples("a", "c", "A"))
    assert scores[0] == 1.5
    assert all(map(math.isnan, scores[1:]))
    assert made.missed == 2


def test_gold_says_what_to_do_about_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        ScorerError, match=r"no score for 1 of 2 completions, as for 'c'.*missing: NUMBER"
    ):
        scorer(tmp_path, ROWS, "task.gold")(samples("a", "c"))
    assert scorer(tmp_path, ROWS, "task.gold", missing=-1)(samples("c")) == [-1]


@pytest.mark.parametrize("score", ["good", "nan", True, [1]])
def test_a_score_that_is_no_number_is_named_by_row(tmp_path: Path, score: object) -> None:
    with pytest.raises(SpecError, match="row 2: score is no finite number"):
        scorer(tmp_path, [ROWS[0], row("q", "z", score)], "task.gold")


def test_other_scores_in_the_file_are_other_judgements(tmp_path: Path) -> None:
    one = scorer(tmp_path, ROWS, "task.gold").fingerprint
    assert one == scorer(tmp_path, ROWS, "task.gold").fingerprint
    assert one != scorer(tmp_path, ROWS[:3], "task.gold").fingerprint
