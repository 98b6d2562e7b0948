"""Several golds in the report's numbers: the stop, the Pareto set, what a limit passed over."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_study import FakeTrial, trial, write_study
from scipy import stats

from kltune.metrics.jsonl import encode
from kltune.report.answer import answer_facts
from kltune.report.compare import plateau, prompt_scores
from kltune.report.golds import (
    Front,
    front_of,
    gold_names,
    golds_at_stop,
    golds_facts,
    passed_over,
)
from kltune.report.recommend import NoAnswer, Recommendation, recommend
from kltune.report.rows import StudyRows, read_study

TASK = {"builtin": "kitchen", "golds": ["retention"]}
GOLD_HIGH = (0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0)
KEEP_LOST = (0.9, 0.9, 0.85, 0.6, 0.5, 0.5, 0.4, 0.3, 0.3)
GOLD_MILD = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.7, 0.7, 0.7)
KEEP_HELD = (0.9, 0.9, 0.9, 0.9, 0.88, 0.88, 0.87, 0.87, 0.86)


def greedy(**how: Any) -> FakeTrial:
    return trial(0.2, gold=GOLD_HIGH, others={"retention": KEEP_LOST}, noise=0.05, **how)


def mild(**how: Any) -> FakeTrial:
    return trial(0.3, gold=GOLD_MILD, others={"retention": KEEP_HELD}, noise=0.05, **how)


def study_of(folder: Path, *fakes: FakeTrial, also: dict[str, Any] | None = None) -> StudyRows:
    limits = {} if also is None else {"retention": also}
    objective = {"kl_limit": 5.0, "also": limits}
    return read_study(write_study(folder, fakes, task=TASK, objective=objective))


def found(study: StudyRows) -> Recommendation:
    answer = recommend(study)
    assert isinstance(answer, Recommendation)
    return answer


def test_the_limit_changes_who_is_recommended_and_where_to_stop(tmp_path: Path) -> None:
    free = study_of(tmp_path / "a", greedy(), mild())
    assert found(free).best.number == 0
    limited = study_of(tmp_path / "b", greedy(), mild(), also={"max_drop": 0.1})
    answer = found(limited)
    assert answer.best.number == 1
    greedy_row = limited.trials[0]  # judged at step 20, the last that keeps enough
    assert greedy_row.peak is not None
    assert greedy_row.peak.step == 20
    stop = plateau(greedy_row, limited.spec.objective, limited.spec.kl_unit)
    assert stop is not None
    assert (stop.first_step, stop.last_step) == (20, 20)


def test_the_paired_value_is_that_of_the_allowed_checkpoints(tmp_path: Path) -> None:
    study = study_of(tmp_path, greedy(), also={"max_drop": 0.1})
    row = study.trials[0]
    scores = prompt_scores(row, study.spec.objective, study.spec.kl_unit)
    assert scores is not None
    assert float(scores.mean()) == pytest.approx(row.value)
    assert row.value == pytest.approx(0.6, abs=0.05)


def test_every_gold_is_held_against_step_0_on_the_same_prompts(tmp_path: Path) -> None:
    study = study_of(tmp_path, mild(), also={"max_drop": 0.1})
    objective, keep = golds_at_stop(study, found(study))
    assert (objective.name, keep.name) == ("gold", "retention")
    assert objective.limit is None
    peak, start = found(study).best.peak, found(study).best.start
    assert peak is not None
    assert start is not None
    now, before = peak.others["retention"].by_prompt, start.others["retention"].by_prompt
    expected = stats.ttest_rel(now, before).confidence_interval(0.95)
    assert keep.change is not None
    assert keep.change.mean == pytest.approx(np.mean(now) - np.mean(before))
    assert (keep.change.low, keep.change.high) == pytest.approx((expected.low, expected.high))
    assert keep.floor == pytest.approx(0.8)
    assert keep.margin is not None
    assert keep.margin.mean == pytest.approx(keep.mean - 0.8)
    assert keep.margin.low == pytest.approx(expected.low + 0.1)
    assert (keep.is_respected, keep.is_told) == (True, True)


def test_a_mean_near_its_floor_is_not_told_from_it(tmp_path: Path) -> None:
    study = study_of(tmp_path, mild(), also={"min": 0.865})
    keep = golds_at_stop(study, found(study))[1]
    assert keep.margin is not None
    assert keep.margin.low < 0 < keep.margin.high
    assert (keep.is_respected, keep.is_told) == (True, False)


def test_the_pareto_set_is_what_no_checkpoint_beats_within_the_kl_limit(tmp_path: Path) -> None:
    study = study_of(tmp_path, greedy(), mild())
    front = front_of(study, "retention")
    assert len(front.spots) == 16
    assert by_hand(front) == {(s.row.number, s.checkpoint.step) for s in front.best}
    golds = [spot.place[0] for spot in front.best]
    assert golds == sorted(golds, reverse=True)
    assert all(spot.checkpoint.step > 0 for spot in front.spots)


def by_hand(front: Front) -> set[tuple[int, int]]:
    places = [s.place for s in front.spots]

    def is_beaten(one: tuple[float, float]) -> bool:
        return any(all(b >= a for a, b in zip(one, p, strict=True)) and p != one for p in places)

    return {(s.row.number, s.checkpoint.step) for s in front.spots if not is_beaten(s.place)}


def test_what_is_beyond_the_kl_limit_is_on_no_front(tmp_path: Path) -> None:
    rows = write_study(
        tmp_path, [greedy(), mild()], task=TASK, objective={"kl_limit": 0.04}, guards={}
    )
    front = front_of(read_study(rows), "retention")
    assert front.outside
    assert all(spot.checkpoint.kl_token <= 0.04 for spot in front.best)
    assert len(front.spots) + len(front.outside) <= 16


def test_what_a_limit_passed_over_is_named(tmp_path: Path) -> None:
    study = study_of(tmp_path / "a", greedy(), mild(), also={"max_drop": 0.1})
    over = passed_over(study, found(study))
    assert over is not None
    assert over.row.number == 0
    assert over.checkpoint.gold == pytest.approx(1.0)
    free = study_of(tmp_path / "b", greedy(), mild())
    assert passed_over(free, found(free)) is None


def test_no_feasible_trial_says_how_near_the_gold_came(tmp_path: Path) -> None:
    answer = recommend(study_of(tmp_path, greedy(), also={"min": 0.95}))
    assert isinstance(answer, NoAnswer)
    assert "respects the limits on KL and retention" in answer.reason
    (of_gold,) = answer.advice  # the KL limit is not what stands in the way
    assert of_gold == (
        "retention: 0.9 at step 0, at most 0.9 after it (trial 0, step 10); the lowest allowed is 0.95. "
        "Lower it by objective.also.retention if less of it is acceptable."
    )


def test_the_answer_says_on_one_line_what_became_of_the_other_golds(tmp_path: Path) -> None:
    study = study_of(tmp_path / "a", mild(), also={"max_drop": 0.1})
    facts = dict(answer_facts(study, found(study)))
    assert facts["Other golds"] == (f"{words_of(study)}: respected (at most 0.1 below step 0)")
    single = read_study(write_study(tmp_path / "b", [trial(0.2)]))
    assert "Other golds" not in dict(answer_facts(single, found(single)))


def words_of(study: StudyRows) -> str:
    keep = golds_at_stop(study, found(study))[1]
    return (
        f"retention {keep.mean:.3f} ± {keep.se:.3f} there, {keep.start:.3f} ± {keep.start_se:.3f} "
        "before training"
    )


def test_a_study_with_one_gold_has_no_facts_of_several(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.2)]))
    assert gold_names(study) == ()
    assert golds_facts(study, recommend(study)) == {}


def test_the_facts_are_strict_json(tmp_path: Path) -> None:
    study = study_of(tmp_path, greedy(), mild(), also={"max_drop": 0.1})
    facts = golds_facts(study, recommend(study))
    assert "non_finite" not in encode(facts)
    keep = facts["at_stop"]["retention"]
    assert keep["respected"] is True
    assert math.isclose(keep["floor"], 0.8)
    assert facts["limits"] == {"retention": {"min": None, "max_drop": 0.1}}
    assert facts["passed_over"]["trial"] == 0
    assert all(spot["others"]["retention"] > 0 for spot in facts["pareto"]["retention"])
