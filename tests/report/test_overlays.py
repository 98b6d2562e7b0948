from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import law_case
import numpy as np
import pytest
from fake_study import trial, write_study
from preview_case import forecast_of, hump, scored

from kltune.metrics.jsonl import write_json
from kltune.preview.result import FILE
from kltune.report.overlays import overlay, usable_forecast
from kltune.report.rows import read_study


def test_the_forecast_lies_at_the_root_of_its_kl(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1)]))
    assert overlay(study).gold == ()
    forecast = forecast_of(scored(hump))
    write_json(tmp_path / FILE, forecast.as_json())
    found = overlay(study)
    for field in ("gold", "proxy"):
        (line,) = found.of(field)
        points = forecast.curve("tilt").points
        assert [x for x, _ in line.points] == pytest.approx([math.sqrt(p.kl_seq) for p in points])
        assert [y for _, y in line.points] == pytest.approx(
            [getattr(p, field).value for p in points]
        )


def test_a_forecast_of_another_model_or_a_broken_one_is_left_out(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1)]))
    forecast = forecast_of(scored(hump))
    other = dataclasses.replace(forecast, subject=dataclasses.replace(forecast.subject, model="x"))
    write_json(tmp_path / FILE, other.as_json())
    assert usable_forecast(study) is None
    (tmp_path / FILE).write_text("{")
    assert usable_forecast(study) is None


def test_the_law_of_the_recommended_trial_starts_at_its_own_gold(tmp_path: Path) -> None:
    study = law_case.study(tmp_path)
    found = law_case.findings(study, best=2)
    lines = overlay(study, found).gold
    assert found.beta is not None
    fit, start = found.beta.law.fit, study.trials[2].start
    assert start is not None
    (line,) = lines
    assert line.name.startswith("law fitted to trial 2")
    assert line.points[-1][0] == pytest.approx(math.sqrt(fit.kl_range[1]))
    d_P = np.array([x for x, _ in line.points])
    gains = [y - start.gold for _, y in line.points]
    assert gains == pytest.approx(fit.gain(d_P).tolist(), abs=1e-9)
    assert overlay(study, dataclasses.replace(found, beta=None)).gold == ()
