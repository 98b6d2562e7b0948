from __future__ import annotations

from pathlib import Path

import pytest
from chart_case import accepted, named
from fake_study import trial, write_study
from preview_case import forecast_of, hump, scored

from kltune.report.charts.forecast import forecast_chart
from kltune.report.rows import read_study


def test_curves_and_dots_are_those_of_forecast_and_trials(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, [trial(0.1), trial(0.3)])).trials
    forecast = forecast_of(scored(hump))
    for field in ("gold", "proxy"):
        chart = accepted(forecast_chart(rows, forecast, field, 2.0, "#0d9488"))
        dots = named(chart, "evaluations")
        inside = [c for row in rows for c in row.checkpoints if c.kl_seq <= 2.0]
        assert len(dots["x"]) == len(inside) < sum(len(row.checkpoints) for row in rows)
        assert dots["y"] == pytest.approx([getattr(c, field) for c in inside], rel=1e-3)
        assert set(dots["customdata"]) <= {0, 1}
        tilt = named(chart, "forecast: best policy")
        points = forecast.curve("tilt").points
        assert tilt["x"] == pytest.approx([p.kl_seq for p in points], rel=1e-3, abs=1e-9)
        assert tilt["y"] == pytest.approx(
            [getattr(p, field).value for p in points], rel=1e-3, abs=1e-9
        )
