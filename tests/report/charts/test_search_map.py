from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from chart_case import accepted, named, names
from fake_study import FakeTrial, trial, write_study

from kltune.report.charts.search_map import map_chart
from kltune.report.colours import GREY
from kltune.report.document import Chart
from kltune.report.rows import StudyRows, read_study
from kltune.report.search_places import search_places
from kltune.spec.penalty import Penalty
from kltune.spec.trial import ControllerKind
from kltune.trial.outcome import StopReason

STEERED = {"controller": ControllerKind.PROPORTIONAL, "horizon": 640.0}


def study_of(path: Path, *trials: FakeTrial, **spec: object) -> StudyRows:
    return read_study(write_study(path, trials, **spec))


def spots(chart: Chart, name: str) -> Mapping[str, Any]:
    """The trace that holds the trials, not its entry of the legend."""
    (trace,) = [t for t in chart.traces if t["name"] == name and "customdata" in t]
    return trace


def test_the_legend_of_a_map_is_grey_since_a_colour_there_would_read_as_a_value(
    tmp_path: Path,
) -> None:
    steered = [trial(beta, target_kl=0.05, **STEERED) for beta in (0.1, 0.2)]
    other = trial(0.3, target_kl=0.1, **STEERED, penalty=Penalty.K3_LOSS)
    chart = accepted(map_chart(search_places(study_of(tmp_path, *steered, other)), None))
    keys = [t for t in chart.traces if t.get("showlegend", True)]
    assert [key["name"] for key in keys] == ["k2-loss", "k3-loss"]
    for key in keys:
        assert key["marker"]["color"] == GREY
        own = spots(chart, key["name"])
        assert own["marker"]["symbol"] == key["marker"]["symbol"]
        assert own["legendgroup"] == key["legendgroup"]  # a click switches both


def test_a_trial_stands_at_its_target_and_beta_with_its_value_as_colour(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        trial(0.1, target_kl=0.05, **STEERED),
        trial(0.3, target_kl=0.1, **STEERED, penalty=Penalty.K3_LOSS),
        trial(0.0),
    )
    chart = accepted(map_chart(search_places(study), study.trials[0]))
    spot = spots(chart, "k2-loss")
    assert (spot["x"], spot["y"], spot["customdata"]) == ([0.05], [0.1], [0])
    assert spot["marker"]["color"] == pytest.approx([study.trials[0].value], rel=1e-3)
    assert spot["marker"]["symbol"] != spots(chart, "k3-loss")["marker"]["symbol"]
    assert chart.layout["xaxis"]["ticktext"][0] == "no target"
    assert chart.layout["yaxis"]["ticktext"][0] == "0"
    assert named(chart, "recommended: trial 0")["customdata"] == [0]
    assert sum("colorbar" in trace["marker"] for trace in chart.traces) == 1


def test_a_trial_outside_the_limits_is_hollow_and_says_so(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        trial(0.1),
        trial(0.0005, gold=[0.0] + [1.0] * 8),
        trial(0.2),
        objective={"metric": "gold_final", "kl_limit": 0.05},
    )
    assert [row.is_feasible for row in study.trials].count(False) > 0
    chart = accepted(map_chart(search_places(study), None))
    hollow = named(chart, "k2-loss, outside the limits")
    assert hollow["marker"]["symbol"].endswith("-open")
    assert "outside the limits" in hollow["text"][0]


def test_a_trial_without_a_value_is_a_thin_cross_on_the_map(tmp_path: Path) -> None:
    pruned = trial(0.3, target_kl=0.1, **STEERED, reason=StopReason.PRUNED, steps=40)
    study = study_of(tmp_path, trial(0.1, target_kl=0.05, **STEERED), pruned)
    chart = accepted(map_chart(search_places(study), None))
    cross = named(chart, "no value")
    assert cross["customdata"] == [1]
    assert "pruned" in cross["text"][0]
    assert names(chart)[-1] == "no value"
