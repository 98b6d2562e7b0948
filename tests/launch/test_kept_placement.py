from __future__ import annotations

from pathlib import Path
from typing import Any

from kltune.launch.kept_placement import (
    MOST_KEPT,
    keep_choice,
    kept_choices,
    placement_of,
    still_holds,
)
from kltune.launch.placement import Calibration, Placement


def facts(cores: int, device: str = "cpu") -> dict[str, Any]:
    considered = {"workers": cores, "slots": cores, "threads": 1}
    asked = {"slots": "auto", "workers": "auto"}
    return {"device": device, "cores": cores, "asked": asked, "considered": considered}


def calibration(workers: int) -> Calibration:
    return Calibration(Placement(workers, workers, 1), 0.2, 0.1, 100.0)


def test_each_kind_of_machine_finds_its_own_choice_again(tmp_path: Path) -> None:
    keep_choice(tmp_path, calibration(2), facts(2))
    keep_choice(tmp_path, calibration(8), facts(8, "cuda"))
    keep_choice(tmp_path, calibration(1), facts(2))  # chosen anew: replaces the first
    kept = kept_choices(tmp_path)
    assert [placement_of(one).workers for one in kept] == [1, 8]
    assert [still_holds(one, facts(2)) for one in kept] == [True, False]
    assert [still_holds(one, facts(8, "cuda")) for one in kept] == [False, True]


def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    for cores in range(1, MOST_KEPT + 9):
        keep_choice(tmp_path, calibration(1), facts(cores))
    assert len(kept_choices(tmp_path)) == MOST_KEPT


def test_nothing_kept_is_no_choice(tmp_path: Path) -> None:
    assert kept_choices(None) == []
    assert kept_choices(tmp_path) == []
