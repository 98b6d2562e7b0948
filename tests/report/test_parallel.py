from __future__ import annotations

from pathlib import Path

from chart_case import accepted
from fake_study import trial, typical_trials, write_study

from kltune.report.parallel import parallel_coordinates
from kltune.report.rows import read_study
from kltune.spec.trial import KLUnit
from kltune.trial.outcome import StopReason


def test_settings_that_differ_are_axes_and_others_are_not(tmp_path: Path) -> None:
    rows = read_study(write_study(tmp_path, typical_trials())).trials
    figure = parallel_coordinates(rows, rows[0], KLUnit.TOKEN)
    assert figure is not None
    for name in ("beta", "penalty", "controller", "target_kl", "horizon", "value (gold)"):
        assert name in figure.svg
    assert "learning_rate" not in figure.svg
    assert "21 trials with a value" in figure.caption
    chart = accepted(figure.chart)
    assert len(chart.layout["xaxis"]["ticktext"]) == 6
    drawn = {n for trace in chart.traces for n in trace["customdata"] if n is not None}
    assert drawn == {row.number for row in rows if row.value is not None}


def test_fewer_than_two_values_or_equal_settings_have_no_drawing(tmp_path: Path) -> None:
    pruned = trial(0.3, reason=StopReason.PRUNED, steps=40)
    for number, fakes in enumerate(([], [trial(0.1), pruned], [trial(0.1), trial(0.1)])):
        rows = read_study(write_study(tmp_path / str(number), fakes)).trials
        assert parallel_coordinates(rows, None, KLUnit.TOKEN) is None


def test_equal_values_and_beta_zero_alone_are_drawn(tmp_path: Path) -> None:
    fakes = [trial(0.0, value=0.5), trial(0.1, value=0.5)]
    rows = read_study(write_study(tmp_path, fakes)).trials
    assert parallel_coordinates(rows, None, KLUnit.TOKEN) is not None
