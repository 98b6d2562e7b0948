from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import law_case
import pytest
from law_case import FRONTIER, LAW_BUDGET, NAN, PEAK_BUDGET, RISING, SETTLED, fit

from kltune.report.law_words import (
    beta_words,
    budget_words,
    chance_words,
    factor_words,
    frontier_words,
    interval_words,
    pooled_words,
    settling_words,
)
from kltune.spec.penalty import Penalty
from kltune.spec.trial import ControllerKind
from kltune.statistics.law import LawDoubt, LawVerdict
from kltune.statistics.law_errors import Estimate
from kltune.statistics.law_pooled import Gap
from kltune.statistics.settling import Trend


def test_an_identified_peak_is_given_with_interval_unit_and_the_kl_that_was_reached() -> None:
    text = pooled_words(fit(), None)
    assert text.startswith("KL* = 2.72 (2.1 to 3.9) nats/sequence")
    assert "KL reached: 0.35 to 8 nats/sequence" in text


def test_a_rejected_law_gives_no_peak_and_says_where_it_is_off() -> None:
    text = pooled_words(fit(verdict=LawVerdict.REJECTED, misfit_p=1e-5), Gap(1.8, 2.9, 0.182))
    assert text.startswith("law rejected")
    assert "in less than 0.1 % of studies" in text
    assert "between 1.8 and 2.9 nats/sequence, where gold is 0.18 above it" in text
    assert "2.72" not in text


@pytest.mark.parametrize(
    ("doubt", "words"),
    [(LawDoubt.OUTSIDE, "KL range is too short"), (LawDoubt.NO_BEND, "does not bend enough")],
)
def test_what_is_not_identifiable_says_why_and_what_is_known_still(
    doubt: LawDoubt, words: str
) -> None:
    open_peak = fit(
        verdict=LawVerdict.NOT_IDENTIFIABLE, doubt=doubt, kl_peak=Estimate(20.0, 3.0, float("inf"))
    )
    text = pooled_words(open_peak, None)
    assert text.startswith("not identifiable: ")
    assert words in text
    assert "it is not below 3 nats/sequence" in text


def test_too_few_trials_are_named() -> None:
    assert "too few" in pooled_words(fit(a=None, b=None, kl_peak=None), None)


def test_the_frontier_is_one_or_not_or_not_tested() -> None:
    one = frontier_words(FRONTIER)
    assert one.startswith("can't be told from one frontier: +0.030 gold (−0.050 to +0.110)")
    assert "1.4 nats/sequence" in one
    other = frontier_words(replace(FRONTIER, gain=0.2, low=0.1, high=0.3, p_value=0.001))
    assert other.startswith("no: a higher beta gives more gold at the same KL")
    assert frontier_words(replace(FRONTIER, p_value=NAN)).startswith("not tested: 24 trials")


def test_trials_whose_kl_still_rises_are_marked(tmp_path: Path) -> None:
    found = law_case.findings(law_case.study(tmp_path))
    laws = [replace(law, settling=SETTLED) for law in found.trials]
    laws[2] = replace(laws[2], settling=RISING)
    text = settling_words(replace(found, trials=tuple(laws)))
    assert text.startswith("still rising in 1 (trial 2); settled in 7 of 8 trials")
    assert "short trials favour low betas" in text


@pytest.mark.parametrize(
    ("settling", "at_level", "words"),
    [
        (RISING, True, "still rising at the end (× 2.1 over 40 steps, 1.4 to 3.2)"),
        (replace(RISING, trend=Trend.FALLING), True, "still falling"),
        (replace(RISING, trend=Trend.UNTOLD), True, "can't be told (×"),
        (SETTLED, False, "it is stopped at 2.4 nats/sequence, and its KL settled at 2.5"),
        (SETTLED, True, "ended early"),
    ],
)
def test_a_beta_that_cant_be_told_says_why(
    tmp_path: Path, settling, at_level: bool, words: str
) -> None:  # type: ignore[no-untyped-def]
    found = law_case.findings(law_case.study(tmp_path))
    text = beta_words(law_case.beta(found.trials[0], settling, at_level=at_level))
    assert text.startswith("no, beta can't be told from trial 0: ")
    assert words in text


def test_where_beta_cant_be_told_a_kl_budget_is_recommended(tmp_path: Path) -> None:
    found = law_case.findings(law_case.study(tmp_path))
    untold = replace(found, beta=law_case.beta(found.trials[0], RISING), budget=LAW_BUDGET)
    assert budget_words(untold).startswith("a KL budget and not beta: stop at 2.72 nats/sequence")
    assert "where the law peaks" in budget_words(untold)
    told = replace(
        found, beta=law_case.beta(found.trials[0], SETTLED, told=True), budget=PEAK_BUDGET
    )
    assert budget_words(told).startswith("beta, and as a check the KL: 2.4 nats/sequence")
    assert told.beta is not None
    assert "this beta held it there" in beta_words(told.beta)
    assert budget_words(replace(found, beta=None)) == ""


def test_no_penalty_has_no_beta_to_tell(tmp_path: Path) -> None:
    found = law_case.findings(law_case.study(tmp_path))
    law = found.trials[0]
    setting = law.row.setting.model_copy(update={"beta": 0.0, "penalty": None})
    free = replace(law, row=replace(law.row, setting=setting))
    assert "no KL penalty" in beta_words(law_case.beta(free, RISING))


def test_numbers_keep_their_meaning() -> None:
    assert interval_words(None) == "–"
    assert interval_words(Estimate(1.0, 0.5, 2.0)) == "1 (0.5 to 2)"
    assert chance_words(0.0004) == "less than 0.1 %"
    assert chance_words(0.0421) == "4.2 %"
    assert "too wildly" in factor_words(replace(RISING, low=0.01, high=900.0))
    assert factor_words(replace(RISING, factor=NAN)) == "only 40 steps to look at"


def test_a_beta_that_a_controller_moved_is_not_carried_over(tmp_path: Path) -> None:
    law = law_case.findings(law_case.study(tmp_path)).trials[0]
    given = law.row.setting
    steered = given.model_copy(
        update={
            "beta": 0.1,
            "penalty": Penalty.K1_REWARD,
            "controller": ControllerKind.PROPORTIONAL,
            "target_kl": 0.1,
            "horizon": 500.0,
        }
    )
    found = law_case.beta(replace(law, row=replace(law.row, setting=steered)), SETTLED)
    text = beta_words(found)
    assert "has no one beta: its proportional controller moved it" in text
    assert "yes" not in text
