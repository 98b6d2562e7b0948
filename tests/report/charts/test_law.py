from __future__ import annotations

from pathlib import Path

import law_case
import numpy as np
import pytest
from chart_case import accepted, named, names
from law_case import fit

from kltune.report.charts.law import law_chart
from kltune.statistics.law import LawVerdict


def test_the_points_are_the_gains_and_the_curve_is_the_law(tmp_path: Path) -> None:
    found = law_case.findings(law_case.study(tmp_path), best=1, pooled=fit())
    chart = accepted(law_chart(found, 3.0, (-0.1, 1.0)))
    best = named(chart, "recommended: trial 1")
    law = next(law for law in found.trials if law.row.number == 1)
    assert best["x"][1:] == pytest.approx(law.points.d_P, rel=1e-3)
    assert best["y"][1:] == pytest.approx(law.points.gain_PN.mean(axis=1), rel=1e-3, abs=1e-9)
    assert set(best["customdata"]) == {1}
    curve = named(chart, "law of all trials")
    d_P = np.array(curve["x"])
    assert curve["y"] == pytest.approx(fit().gain(d_P), abs=1e-3)
    assert chart.layout["annotations"][0]["text"] == "KL* = 2.72 (2.1 to 3.9) nats/sequence"
    assert {t for t in named(chart, "other trials")["customdata"] if t is not None} == {
        law.row.number for law in found.trials
    } - {1}


def test_a_rejected_law_is_dashed_and_without_a_peak(tmp_path: Path) -> None:
    rejected = fit(verdict=LawVerdict.REJECTED)
    found = law_case.findings(law_case.study(tmp_path), pooled=rejected)
    chart = accepted(law_chart(found, 3.0, (-0.1, 1.0)))
    assert named(chart, "law of all trials (rejected)")["line"]["dash"] == "dash"
    assert "annotations" not in chart.layout


def test_without_a_law_there_are_the_trials_alone(tmp_path: Path) -> None:
    none = fit(a=None, b=None, kl_peak=None, verdict=LawVerdict.NOT_IDENTIFIABLE)
    found = law_case.findings(law_case.study(tmp_path), best=None, pooled=none)
    assert names(accepted(law_chart(found, 3.0, (-0.1, 1.0)))) == ["other trials"]
