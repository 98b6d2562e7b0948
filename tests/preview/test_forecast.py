from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from preview_case import forecast_of, hump, opposite, same, scored

from kltune.preview.plot import save_plot
from kltune.preview.reading import MIN_PROMPTS
from kltune.preview.result import Verdict
from kltune.preview.table import preview_table
from kltune.preview.words import headline


def test_a_forecast_holds_both_curves_and_a_reading_of_each() -> None:
    found = forecast_of(scored(hump, samples=512))
    assert [curve.kind for curve in found.curves] == ["tilt", "best-of-n"]
    assert {reading.kind for reading in found.readings} == {"tilt", "best-of-n"}
    assert found.reading.verdict is Verdict.TURNS


def test_the_same_samples_give_the_same_forecast() -> None:
    assert forecast_of(scored(hump)) == forecast_of(scored(hump))


def test_sigma_r_is_the_spread_within_a_prompt() -> None:
    sigma = forecast_of(scored(same, samples=256)).sigma_r
    assert sigma.value == pytest.approx(1.0, abs=0.03)  # not the 1.4 over all completions
    assert sigma.low is not None
    assert sigma.high is not None
    assert sigma.low < sigma.value < sigma.high


@pytest.mark.parametrize(("gold_of", "value"), [(same, 1.0), (opposite, -1.0)])
def test_agreement_is_the_correlation_within_a_prompt(gold_of, value: float) -> None:
    agreed = forecast_of(scored(gold_of)).agreement
    assert agreed is not None
    assert agreed.value == pytest.approx(value)


def test_gold_that_is_the_proxy_to_the_last_digit_is_told() -> None:
    assert any("a sweep refuses this spec" in note for note in forecast_of(scored(same)).notes)
    assert forecast_of(scored(hump)).notes == ()


@pytest.mark.parametrize(("prompts", "samples"), [(1, 2), (2, 2), (1, 300), (9, 10)])
def test_the_smallest_samples_give_an_answer_that_claims_little(
    tmp_path: Path, prompts: int, samples: int
) -> None:
    found = forecast_of(scored(hump, prompts=prompts, samples=samples))
    assert "None" not in headline(found)
    assert found.reading.verdict in (Verdict.UNCLEAR, Verdict.RISES, Verdict.TURNS)
    assert prompts >= MIN_PROMPTS or found.reading.verdict is Verdict.UNCLEAR
    save_plot(found, tmp_path / "preview.png")
    preview_table(found)


def test_a_proxy_that_never_varies_gives_an_answer(tmp_path: Path) -> None:
    data = scored(hump)
    flat = replace(data, proxy_PN=np.ones_like(data.proxy_PN))
    found = forecast_of(flat)
    assert found.reading.verdict is Verdict.UNCLEAR
    assert found.sigma_r.value == 0
    assert found.agreement is None  # undefined, not 0
    assert found.needed == ()
    assert found.suggestion.beta is None
    save_plot(found, tmp_path / "preview.png")
    preview_table(found)


@pytest.mark.parametrize("score", [1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("which", ["proxy", "gold"])
def test_a_scorer_that_never_varies_is_told_and_rounding_does_not_hide_it(
    which: Literal["proxy", "gold"], score: float
) -> None:
    data = scored(hump, samples=7)
    per_prompt = (
        np.arange(48.0)[:, None] * score
    )  # prompts may differ: only within one does it count
    flat = np.broadcast_to(per_prompt, data.proxy_PN.shape).copy()
    parts = replace(data, proxy_PN=flat) if which == "proxy" else replace(data, gold_PN=flat)
    found = forecast_of(parts)
    assert found.flat == (which,)
    assert found.agreement is None
    assert found.needed == ()
    assert (found.suggestion.beta, found.suggestion.target_kl) == (None, None)
    assert which == "gold" or found.sigma_r.value == 0


def test_a_kl_with_ties_is_never_below_0() -> None:
    for samples in (5, 10, 11, 22):  # where rounding leaves some of 1e-17
        reference, *others = forecast_of(scored(hump, samples=samples)).curve("best-of-n").points
        assert reference.tied_kl_seq == 0
        assert all(point.tied_kl_seq is not None and point.tied_kl_seq > 0.1 for point in others)
