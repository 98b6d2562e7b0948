from __future__ import annotations

import dataclasses
from pathlib import Path

from fake_study import FakeTrial, trial, typical_trials, write_study

from kltune.report.rows import StudyRows, read_study
from kltune.report.search_places import SHAPES, kinds, search_places
from kltune.spec.penalty import Penalty
from kltune.spec.trial import ControllerKind

STEERED = {"controller": ControllerKind.PROPORTIONAL, "horizon": 640.0}


def study_of(path: Path, *trials: FakeTrial) -> StudyRows:
    return read_study(write_study(path, trials))


def test_there_is_a_shape_for_every_penalty_and_one_for_none() -> None:
    assert len(set(SHAPES)) == len(SHAPES) == len(Penalty)


def test_what_has_no_place_on_a_logarithmic_axis_has_a_strip_of_its_own(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        trial(0.1, target_kl=0.05, **STEERED),
        trial(0.3),
        trial(0.0),
        trial(0.2, target_kl=0.07, **STEERED),
    )
    # As under control.calibrate: the target is not given, but measured.
    asked = study.trials[3].setting.model_copy(update={"target_kl": None})
    measured = dataclasses.replace(study.trials[3], setting=asked)
    study = dataclasses.replace(study, trials=(*study.trials[:3], measured))
    places = search_places(study)
    by_number = {place.row.number: place for place in places.of_trials}
    labels = {label: at for at, label in places.x.ticks}
    assert by_number[0].x == 0.05
    assert by_number[1].x == by_number[2].x == labels["no target"]
    assert by_number[3].x == labels["measured"]
    assert labels["measured"] < labels["no target"] < 0.05
    assert by_number[2].y == {label: at for at, label in places.y.ticks}["0"]
    walls = sorted(places.x.walls)
    assert labels["measured"] < walls[0] < labels["no target"] < walls[1] < 0.05
    low, high = places.x.limits
    assert low < labels["measured"]
    assert high > 0.05


def test_a_strip_that_no_trial_needs_is_left_out(tmp_path: Path) -> None:
    study = study_of(
        tmp_path, trial(0.1, target_kl=0.05, **STEERED), trial(0.2, target_kl=0.1, **STEERED)
    )
    places = search_places(study)
    assert places.x.walls == places.y.walls == ()
    assert [label for _, label in places.x.ticks] == ["0.05", "0.1"]


def test_the_best_are_drawn_last(tmp_path: Path) -> None:
    places = search_places(read_study(write_study(tmp_path, typical_trials())))
    values = [place.value for place in places.of_trials]
    known = [value for value in values if value is not None]
    assert values[: len(values) - len(known)] == [None] * (len(values) - len(known))
    assert known == sorted(known)
    assert kinds(places)[-1][2], "those without a value are the last entry of the legend"


def test_a_crowd_in_a_strip_is_spread_and_stays_between_the_walls(tmp_path: Path) -> None:
    study = study_of(tmp_path, trial(0.1, target_kl=0.05, **STEERED), trial(0.3))
    steered, free = study.trials
    crowd = tuple(dataclasses.replace(free, number=n) for n in range(1, 100))
    places = search_places(dataclasses.replace(study, trials=(steered, *crowd)))
    xs = [place.x for place in places.of_trials if place.row.number > 0]
    assert len(set(xs)) == len(xs)
    assert places.x.limits[0] < min(xs)
    assert max(xs) < places.x.walls[0]
