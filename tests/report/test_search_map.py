from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from chart_case import accepted
from fake_study import trial, typical_trials, write_study

from kltune.report.colours import GREY
from kltune.report.rows import read_study
from kltune.report.search_map import search_map
from kltune.trial.outcome import StopReason


def test_the_picture_has_strips_for_no_target_and_for_beta_0(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, typical_trials()))
    figure = search_map(study, study.trials[6])
    assert figure is not None
    ET.fromstring(figure.svg)
    for words in ("no target", "target of KL (nats/token)", "value (gold)", "recommended: trial 6"):
        assert words in figure.svg
    assert "currentColor" in figure.svg
    assert "hollow" in figure.caption
    assert "Ring" in figure.caption
    accepted(figure.chart)


def test_without_a_target_the_value_is_the_axis(tmp_path: Path) -> None:
    pruned = trial(0.3, reason=StopReason.PRUNED, steps=40)
    study = read_study(write_study(tmp_path, [trial(0.1), trial(0.2), pruned]))
    figure = search_map(study, None)
    assert figure is not None
    assert "value (gold, gold_peak)" in figure.svg
    assert "1 trial without a value left out" in figure.caption
    assert "Ring" not in figure.caption


def test_one_trial_is_no_map(tmp_path: Path) -> None:
    assert search_map(read_study(write_study(tmp_path, [trial(0.1)])), None) is None


def test_a_trial_outside_the_limits_is_drawn_hollow(tmp_path: Path) -> None:
    target = {"controller": "proportional", "horizon": 640.0, "target_kl": 0.1}
    trials = [trial(beta, **target) for beta in (0.1, 0.2, 0.3, 0.4)]
    study = read_study(write_study(tmp_path, trials))
    outside = tuple(
        dataclasses.replace(row, outcome=dataclasses.replace(row.outcome, is_feasible=False))
        for row in study.trials[:2]
        if row.outcome is not None
    )
    figure = search_map(dataclasses.replace(study, trials=(*outside, *study.trials[2:])), None)
    assert figure is not None
    assert "outside the limits" in figure.svg
    fills = re.findall(r"<use [^>]*fill: (\S+); stroke: #[0-9a-f]{6}", figure.svg)
    assert fills.count("none") == 2
    # The last one: the legend's entry of the filled, grey whatever the values are.
    assert len(fills) == 5
    assert fills[-1] == GREY


def test_a_map_of_nothing_but_trials_outside_the_limits_has_its_scale(tmp_path: Path) -> None:
    target = {"controller": "proportional", "horizon": 640.0, "target_kl": 0.1}
    trials = [trial(beta, **target) for beta in (0.1, 0.2)]
    strict = {"metric": "gold_final", "kl_limit": 0.001}
    study = read_study(write_study(tmp_path, trials, objective=strict))
    assert not any(row.is_feasible for row in study.trials)
    figure = search_map(study, None)
    assert figure is not None
    assert "value (gold)" in figure.svg
