from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from confirm_case import judged, result_of
from confirm_case import study as confirmed_study
from fake_study import SIGMA_R, TOKENS, FakeTrial, trial, typical_trials, write_study

from kltune.errors import StudyError
from kltune.export.openrlhf import export_openrlhf
from kltune.export.plain import plain
from kltune.export.target import Sizes, make_target
from kltune.export.tripwire import tripwire
from kltune.export.verl import export_verl
from kltune.export.winner import compared, confirmed_instead, of_trial, recommended
from kltune.metrics.jsonl import write_json
from kltune.report.answer import headline
from kltune.report.compare import interval_words, value_interval
from kltune.report.controller_blocks import judge, verdict_words
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.spec.penalty import Penalty
from kltune.spec.trial import ControllerKind
from kltune.trial.outcome import StopReason


def study(folder: Path, trials: list[FakeTrial] | None = None, **spec: object) -> StudyRows:
    return read_study(write_study(folder / "s", trials or typical_trials(), **spec))


def test_the_winner_is_the_reports_and_says_the_same(tmp_path: Path) -> None:
    rows = study(tmp_path)
    answer, found = recommend(rows), recommended(rows)
    assert isinstance(answer, Recommendation)
    assert found is not None
    assert found.stop is not None
    assert found.source.trial == answer.best.number
    assert found.source.rivals == len(answer.tied)
    assert found.setting == answer.best.setting
    first, last = answer.plateau.first_step, answer.plateau.last_step
    assert (found.stop.first_step, found.stop.last_step) == (first, last)
    assert f"between steps {first} and {last}" in headline(rows, answer)
    assert found.measured.sigma_r == SIGMA_R
    assert found.measured.mean_tokens == pytest.approx(TOKENS)
    assert found.kl_guard is not None
    assert found.kl_guard.limit == 0.5


def test_gold_has_the_interval_of_the_procedure_around_the_told_value(tmp_path: Path) -> None:
    rows = study(tmp_path)
    answer, found = recommend(rows), recommended(rows)
    assert isinstance(answer, Recommendation)
    assert found is not None
    assert found.gold is not None
    gold = found.gold
    assert gold.value == answer.best.value
    assert gold.low is not None
    assert gold.high is not None
    assert gold.low < gold.value < gold.high
    shown = value_interval(answer.best, rows.spec.objective, rows.spec.kl_unit)
    assert shown is not None
    assert interval_words(*shown) in headline(rows, answer)
    assert (gold.low, gold.high) == shown
    assert gold.start == pytest.approx(answer.best.checkpoints[0].gold)
    assert "not confirmed" in found.confirmation


def test_the_final_window_is_the_last_steps_up_to_the_peak(tmp_path: Path) -> None:
    steered = trial(0.05, controller=ControllerKind.PROPORTIONAL, target_kl=0.05, horizon=200.0)
    rows = study(tmp_path, [steered])
    found = of_trial(rows, 0)
    row = rows.trials[0]
    assert row.peak is not None
    low, high = found.measured.window or (0, 0)
    assert high == row.peak.step
    assert high - low == 4
    betas = sorted(
        b for s, b in zip(row.curve.step, row.curve.beta, strict=True) if low <= s <= high
    )
    assert found.measured.final_beta == betas[2]
    assert found.measured.target_kl == 0.05


def test_another_trial_is_marked_as_such_and_has_its_own_window(tmp_path: Path) -> None:
    rows = study(tmp_path)
    best = recommended(rows)
    assert best is not None
    other = next(
        row.number for row in rows.trials if row.is_candidate and row.number != best.source.trial
    )
    found = of_trial(rows, other)
    assert not found.source.is_recommended
    assert found.source.rivals == 0
    assert found.stop is not None
    assert found.stop.first_step <= found.stop.peak_step <= found.stop.last_step


def test_a_trial_that_is_judged_by_its_end_stops_there(tmp_path: Path) -> None:
    rows = study(tmp_path, objective={"metric": "gold_final", "kl_limit": 5.0})
    found = recommended(rows)
    assert found is not None
    assert found.stop is not None
    assert found.gold is not None
    assert found.stop.first_step == found.stop.last_step == found.stop.steps_run
    row = next(t for t in rows.trials if t.number == found.source.trial)
    assert row.peak is not None
    assert row.final is not None
    assert row.final.step > row.peak.step
    assert (found.stop.peak_step, found.stop.kl_token) == (row.final.step, row.final.kl_token)
    assert found.measured.window is not None
    assert found.measured.window[1] == row.final.step


def test_without_a_feasible_trial_there_is_no_winner_but_a_trial_can_be_named(
    tmp_path: Path,
) -> None:
    rows = study(tmp_path, objective={"metric": "gold_peak", "kl_limit": 1e-6})
    assert recommended(rows) is None
    assert of_trial(rows, 4).source.trial == 4


def test_a_trial_that_is_absent_or_has_no_evaluation_is_refused(tmp_path: Path) -> None:
    rows = study(tmp_path)
    with pytest.raises(StudyError, match=r"no trial 99 [(]its trials are 0 to 23"):
        of_trial(rows, 99)
    folder = tmp_path / "s" / "trials" / "00004"
    (folder / "evals.jsonl").unlink()
    with pytest.raises(StudyError, match="no finite evaluation after step 0"):
        of_trial(read_study(tmp_path / "s"), 4)


def test_an_old_study_without_reference_is_read(tmp_path: Path) -> None:
    path = write_study(tmp_path / "s", typical_trials())
    (path / "reference.json").unlink()
    for config in path.glob("trials/*/config.json"):
        facts = json.loads(config.read_text(encoding="utf-8"))
        config.write_text(json.dumps({**facts, "sigma_r": None}), encoding="utf-8")
    found = recommended(read_study(path))
    assert found is not None
    assert found.measured.sigma_r is None
    assert found.measured.mean_tokens == pytest.approx(TOKENS)


def test_rounding_does_not_take_the_mean_length_past_the_limit(tmp_path: Path) -> None:
    trainer = {"steps": 80, "prompts": 8, "group_size": 8, "max_new_tokens": 13}
    found = of_trial(study(tmp_path, [trial(0.1)], trainer=trainer), 0)
    assert found.measured.mean_tokens == 13.0  # 14 by the numbers


@pytest.mark.parametrize(
    ("means", "instead"), [([1.0, 1.0, 0.2, 0.0], None), ([0.2, 1.0, 0.2, 0.0], "other")]
)
def test_a_confirmation_replaces_the_interval_and_may_name_another_trial(
    means: list[float], instead: str | None, tmp_path: Path
) -> None:
    path = confirmed_study(tmp_path / "s")
    before = recommended(read_study(path))
    assert before is not None
    result = result_of(judged(means))
    arms = (replace(result.arms[0], number=before.source.trial), *result.arms[1:])
    write_json(path / "confirm" / "confirm.json", replace(result, arms=arms).as_json())
    rows = read_study(path)
    found = recommended(rows)
    assert found is not None
    assert found.gold is not None
    place = next(p for p in result.main.places if p.arm == 0)
    assert (found.gold.value, found.gold.low, found.gold.high) == (
        place.gold,
        place.low,
        place.high,
    )
    assert found.gold.basis == f"{len(result.seeds)} fresh seeds, {result.num_prompts} test prompts"
    assert found.confirmation.startswith(f"On {len(result.seeds)} fresh seeds")
    expected = None if instead is None else result.arms[result.main.winner].number
    assert confirmed_instead(rows) == expected
    assert (expected is None) is (instead is None)
    other = next(r.number for r in rows.trials if r.is_candidate and r.number != found.source.trial)
    assert of_trial(rows, other).confirmation == "not confirmed"


def test_what_is_wrong_with_a_trial_is_said(tmp_path: Path) -> None:
    trials = [
        trial(0.1),
        trial(0.2, reason=StopReason.PRUNED, steps=40, detail="gold 0.2 below 0.4"),
        trial(0.3, reason=StopReason.DIVERGED, steps=40),
    ]
    rows = study(tmp_path, trials)
    assert of_trial(rows, 0).source.doubt == ""
    pruned = of_trial(rows, 1).source.doubt
    assert pruned.startswith("was not trained to its end: pruned")
    assert "gold 0.2 below 0.4" in pruned
    assert "diverged" in of_trial(rows, 2).source.doubt
    strict = study(tmp_path / "strict", trials, objective={"metric": "gold_peak", "kl_limit": 1e-6})
    assert "is infeasible: it broke a limit" in of_trial(strict, 0).source.doubt
    running = next((tmp_path / "s" / "trials" / "00000").glob("events.jsonl"))
    running.unlink()
    assert "no end on record" in of_trial(read_study(tmp_path / "s"), 0).source.doubt


def test_two_trials_are_compared_on_the_same_prompts(tmp_path: Path) -> None:
    path = confirmed_study(tmp_path / "s")
    best = recommended(read_study(path))
    assert best is not None
    own = best.source.trial
    result = result_of(judged([0.2, 1.0, 0.2, 0.0]))
    numbers = (own, 0, 1, None)
    arms = [replace(arm, number=n) for arm, n in zip(result.arms, numbers, strict=True)]
    write_json(path / "confirm" / "confirm.json", replace(result, arms=tuple(arms)).as_json())
    rows = read_study(path)
    gold = {p.arm: p.gold for p in result.main.places}
    assert gold[1] > gold[0]
    assert compared(rows, 0, own) == (
        f"gold {gold[1]:.3f} against {gold[0]:.3f} on 8 fresh seeds, 32 test prompts"
    )
    values = {row.number: row.value for row in rows.trials}
    assert compared(rows, 3, own) == (
        f"value {values[3]:.3f} against {values[own]:.3f} on the select prompts, one seed"
    )


def test_a_controller_that_missed_its_target_is_warned_of_everywhere(tmp_path: Path) -> None:
    given = {"penalty": Penalty.K1_REWARD, "controller": ControllerKind.PROPORTIONAL}
    rows = study(tmp_path, [trial(0.1, target_kl=50.0, horizon=640, **given), trial(0.2)])
    found, fixed = of_trial(rows, 0), of_trial(rows, 1)
    judgement = judge(rows, rows.trials[0])
    assert judgement is not None
    assert found.missed == verdict_words(rows, rows.trials[0], judgement) != ""
    for framework, build in (("openrlhf", export_openrlhf), ("verl", export_verl)):
        made = build(found, make_target(found, framework, None, Sizes()))
        told = [made, tripwire(found, make_target(found, framework, None, Sizes()), made)]
        for one in told:
            assert any(text.startswith("trial 0's controller: ") for text in one.warnings)
    facts = plain(found, make_target(found, "trl", None, Sizes()))
    assert facts["controller_verdict"] == found.missed
    assert any(found.missed in text for text in facts["warnings"])
    assert fixed.missed == ""
    assert fixed.as_json()["controller_verdict"] is None
