from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from kltune.errors import EnvironmentMissingError, ExitCode
from kltune.launch.disk import DiskNeed, disk_need, estimate, folder_bytes, refuse_full_disk
from kltune.trainer.checkpoint_size import CheckpointSize
from kltune.trial.disk import free_bytes
from tests.fake_bank import small_spec

SIZE = CheckpointSize(last=3_000_000, best=1_000_000)


def test_only_running_trials_keep_what_continues_them() -> None:
    few = estimate(small_spec(budget={"trials": 10}), SIZE, slots=2)
    many = estimate(small_spec(budget={"trials": 20}), SIZE, slots=2)
    assert few.running - few.kept == 6_000_000
    assert few.study == 10 * few.kept + 2 * 6_000_000
    assert many.study - few.study == 10 * few.kept


def test_the_record_grows_with_steps_prompts_samples_and_the_tracker() -> None:
    base = estimate(small_spec(), SIZE, 1).kept
    for change in (
        {"trainer": {"steps": 40}},
        {"evaluate": {"every": 5, "prompts": 64}},
        {"evaluate": {"every": 5, "prompts": 16, "keep": 64}},
        {"trainer": {"steps": 20, "max_new_tokens": 4096}},
    ):
        assert estimate(small_spec(**change), SIZE, 1).kept > base, change
    assert estimate(small_spec(tracking={"enabled": False}), SIZE, 1).kept < base


def test_weights_are_counted_on_the_loaded_base() -> None:
    model = tiny.loaded()
    spec = small_spec(model={"base": "builtin:kitchen", "rank": 4}, budget={"trials": 3})
    wider = small_spec(model={"base": "builtin:kitchen", "rank": 8}, budget={"trials": 3})
    less, more = disk_need(spec, model), disk_need(wider, model)
    assert more.kept - less.kept == 4 * 3712
    assert "for each trial that ended" in less.words()


def test_too_little_room_is_refused_with_both_sizes(tmp_path: Path) -> None:
    need = DiskNeed(running=10**9, kept=10**9, study=10**18)
    with pytest.raises(
        EnvironmentMissingError, match=r"are free there, the study needs .* TB more"
    ):
        refuse_full_disk(tmp_path, need)
    assert EnvironmentMissingError.exit_code is ExitCode.ENVIRONMENT
    refuse_full_disk(tmp_path, DiskNeed(1, 1, 1))


def test_what_the_study_holds_already_is_not_needed_again(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with (tmp_path / "a" / "x").open("wb") as file:
        file.truncate(2 * 10**10)  # all hole: takes no room itself
    assert folder_bytes(tmp_path) == 2 * 10**10
    assert folder_bytes(tmp_path / "absent") == 0
    free = free_bytes(tmp_path)
    assert free is not None
    refuse_full_disk(tmp_path, DiskNeed(1, 1, free + 10**10))
    with pytest.raises(EnvironmentMissingError):
        refuse_full_disk(tmp_path / "other", DiskNeed(1, 1, free + 10**10))
