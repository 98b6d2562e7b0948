from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_study import trial, write_study
from generated_trials import KL_RISING, Noise, make_records, rl_law

from kltune.report.law_findings import BetaVerdict, find_laws
from kltune.report.rows import Checkpoint, StudyRows, TrialRow, read_study
from kltune.statistics.law import LawVerdict
from kltune.statistics.settling import Trend
from kltune.trial.outcome import StopReason, Verdict


def study(folder: Path, number: int = 12, noise: Noise | None = None) -> StudyRows:
    """Trials whose gold follows the law, in a real study folder's clothes."""
    betas = np.geomspace(0.001, 1, number)
    rows = read_study(write_study(folder, [trial(float(b)) for b in betas]))
    records = make_records(
        np.random.default_rng(1), rl_law(0.9, 0.6), noise or Noise(), [KL_RISING] * number
    )
    trials = []
    for row, record in zip(rows.trials, records, strict=True):
        checkpoints = tuple(
            Checkpoint(int(s), float(g.mean()), 0.1, 0.5, 0.1, k / 14, float(k), tuple(g.tolist()))
            for s, k, g in zip(record.steps_S, record.kl_S, record.gold_SN, strict=True)
        )
        peak = max(checkpoints[1:], key=lambda c: c.gold)
        trials.append(replace(row, checkpoints=checkpoints, peak=peak))
    return replace(rows, trials=tuple(trials))


def with_kl(row: TrialRow, kl: np.ndarray) -> TrialRow:
    return replace(row, curve=replace(row.curve, kl_seq=tuple(kl.tolist())))


def judged(folder: Path, kl: np.ndarray, stop: float) -> tuple[BetaVerdict, Trend, bool]:
    rows = study(folder)
    best = with_kl(rows.trials[3], kl)
    assert best.peak is not None
    best = replace(best, peak=replace(best.peak, kl_seq=stop))
    trials = tuple(best if row.number == best.number else row for row in rows.trials)
    found = find_laws(replace(rows, trials=trials), best).beta
    assert found is not None
    return found.verdict, found.law.settling.trend, found.is_at_level


def test_the_peak_of_all_trials_is_found_and_is_the_budget(tmp_path: Path) -> None:
    rows = study(tmp_path)
    found = find_laws(rows, rows.trials[0])
    assert found.pooled.verdict is LawVerdict.IDENTIFIED
    assert found.pooled.kl_peak is not None
    assert found.pooled.kl_peak.low < np.e < found.pooled.kl_peak.high
    assert found.budget is not None
    assert (found.budget.source, found.budget.kl) == ("law", found.pooled.kl_peak.value)
    assert len(found.trials) == 12
    assert found.frontier.is_one is True


def test_without_a_law_the_budget_is_where_the_recommended_trial_peaked(tmp_path: Path) -> None:
    rows = study(tmp_path, number=3)
    found = find_laws(rows, rows.trials[0])
    assert found.pooled.verdict is LawVerdict.NOT_IDENTIFIABLE
    assert found.budget is not None
    assert found.budget.source == "peak"
    assert found.budget.low <= found.budget.kl <= found.budget.high


def test_beta_is_told_where_kl_settled_and_the_trial_stops_at_that_kl(tmp_path: Path) -> None:
    flat = np.full(80, 2.5)
    assert judged(tmp_path / "a", flat, 2.2) == (BetaVerdict.TOLD, Trend.SETTLED, True)
    assert judged(tmp_path / "b", flat, 0.9) == (BetaVerdict.UNTOLD, Trend.SETTLED, False)


def test_beta_is_not_told_where_kl_still_rises(tmp_path: Path) -> None:
    rising = np.geomspace(0.1, 5, 80)
    assert judged(tmp_path, rising, 2.2)[:2] == (BetaVerdict.UNTOLD, Trend.RISING)


@pytest.mark.parametrize("reason", [StopReason.KL_LIMIT, StopReason.KL_JUMP, StopReason.LOCAL_KL])
def test_beta_is_not_told_by_a_trial_that_its_guard_ended_for_its_kl(
    tmp_path: Path, reason: StopReason
) -> None:
    rows = study(tmp_path)
    row = with_kl(rows.trials[0], np.full(80, 2.5))
    assert row.outcome is not None
    assert row.peak is not None
    ended = replace(row.outcome, verdict=Verdict(reason, "KL 4 > 3"))
    best = replace(row, outcome=ended, peak=replace(row.peak, kl_seq=2.5))
    found = find_laws(replace(rows, trials=(best, *rows.trials[1:])), best).beta
    assert found is not None
    assert (found.verdict, found.is_at_level) == (BetaVerdict.UNTOLD, True)


def test_trials_without_a_start_are_left_out(tmp_path: Path) -> None:
    rows = study(tmp_path)
    first = replace(rows.trials[0], checkpoints=rows.trials[0].checkpoints[1:])
    found = find_laws(replace(rows, trials=(first, *rows.trials[1:])), None)
    assert len(found.trials) == 11
    assert found.beta is None


def test_an_empty_study_has_nothing(tmp_path: Path) -> None:
    found = find_laws(read_study(write_study(tmp_path, [])), None)
    assert found.trials == ()
    assert found.budget is None
    assert found.gap is None


@pytest.mark.parametrize("number", [1, 5, 6])
def test_small_studies_do_not_fail(tmp_path: Path, number: int) -> None:
    rows = study(tmp_path, number=number)
    assert len(find_laws(rows, rows.trials[0]).trials) == number
