from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import law_case
import numpy as np
from chart_case import accepted
from law_case import fit

from kltune.report.law_figure import law_figure
from kltune.statistics.law import LawPoints, LawVerdict


def test_an_identified_peak_is_drawn_with_its_band(tmp_path: Path) -> None:
    found = law_case.findings(law_case.study(tmp_path), best=1, pooled=fit())
    figure = law_figure(found)
    assert "KL* = 2.72 (2.1 to 3.9) nats/sequence" in figure.svg
    assert "recommended: trial 1" in figure.svg
    assert "√(KL in nats/sequence)" in figure.svg
    assert "95 % confidence" in figure.caption
    chart = accepted(figure.chart)
    assert "KL* = 2.72 (2.1 to 3.9) nats/sequence" in chart.layout["annotations"][0]["text"]


def test_a_rejected_law_is_drawn_as_such_and_without_a_peak(tmp_path: Path) -> None:
    rejected = fit(verdict=LawVerdict.REJECTED)
    figure = law_figure(law_case.findings(law_case.study(tmp_path), pooled=rejected))
    assert "law of all trials (rejected)" in figure.svg
    assert "KL*" not in figure.svg
    assert "95 %" not in figure.caption


def test_without_a_law_the_trials_are_drawn_alone(tmp_path: Path) -> None:
    none = fit(a=None, b=None, kl_peak=None, verdict=LawVerdict.NOT_IDENTIFIABLE)
    assert "law of" not in law_figure(law_case.findings(law_case.study(tmp_path), pooled=none)).svg


def test_one_evaluation_that_broke_down_does_not_flatten_the_rest(tmp_path: Path) -> None:
    found = law_case.findings(law_case.study(tmp_path), best=None)
    law = found.trials[0]
    far = LawPoints(
        np.append(law.points.d_P, 50.0),
        np.concatenate([law.points.gain_PN, np.full((1, law.points.gain_PN.shape[1]), -9.0)]),
    )
    figure = law_figure(replace(found, trials=(replace(law, points=far), *found.trials[1:])))
    assert "further to the right not drawn (but fitted)" in figure.caption
    assert "−8" not in figure.svg


def test_gold_that_never_moves_still_gets_an_axis(tmp_path: Path) -> None:
    found = law_case.findings(law_case.study(tmp_path), best=None)
    still = [
        replace(law, points=replace(law.points, gain_PN=np.zeros_like(law.points.gain_PN)))
        for law in found.trials
    ]
    none = fit(a=None, b=None, kl_peak=None, verdict=LawVerdict.NOT_IDENTIFIABLE)
    accepted(law_figure(replace(found, trials=tuple(still), pooled=none)).chart)
