from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_study import SPEC, trial
from guarded_case import guarded

from kltune.report.guards import action_of, find_guards, guard_data, guard_end, guard_end_short
from kltune.spec.study import StudySpec
from kltune.trial.outcome import StopReason


def test_each_guard_is_counted_by_trials_with_what_it_spared(tmp_path: Path) -> None:
    found = find_guards(guarded(tmp_path))
    drop, entropy, cut = found.said
    assert (drop.guard, drop.action, drop.stopped, drop.warned) == (
        StopReason.GOLD_DROP,
        "stop",
        (1, 2),
        (),
    )
    assert drop.first_steps == (30, 50)
    assert drop.spared_steps == 50 + 30
    assert (cut.guard, cut.stopped, cut.warned, cut.first_steps) == (
        StopReason.TRUNCATION,
        (),
        (2, 3),
        (25, 25),
    )
    assert entropy.warned == (3,)
    assert "stalled" in found.silent
    assert not {"gold_drop", "truncation", "entropy"} & {*found.silent, *found.off}
    assert set(found.off) == {"kl", "wall"}
    assert not found.unknown


def test_the_action_is_that_in_force() -> None:
    base = {
        "name": "a",
        "task": "kitchen",
        "model": {"base": "builtin:kitchen"},
        "trainer": {"steps": 80},
        "search": {"beta": 0.1},
        "budget": {"trials": 2},
    }

    def act(field: str, **changes: Any) -> str:
        return action_of(StudySpec.model_validate({**base, **changes}), field)

    assert act("gold_drop") == "stop"
    assert act("gold_drop", objective={"metric": "gold_final"}) == "warn"
    assert act("kl") == "off"
    assert act("kl", objective={"kl_limit": 1}) == "stop"
    assert act("wall") == "off"
    assert act("wall", guards={"wall": "9m"}) == "stop"
    assert act("entropy", guards={"entropy": "off"}) == "off"


def test_a_study_of_an_earlier_kltune_claims_no_silence(tmp_path: Path) -> None:
    study = guarded(tmp_path, [trial(0.1)])
    path = tmp_path / "resolved.json"
    resolved = json.loads(path.read_text())
    resolved["guards"] = {"kl": None, "wall": None}
    path.write_text(json.dumps(resolved))
    found = find_guards(study)
    assert found.unknown
    assert (found.said, found.silent, found.off) == ((), (), ("kl", "wall"))


def test_the_data_are_plain(tmp_path: Path) -> None:
    data = json.loads(json.dumps(guard_data(guarded(tmp_path))))
    assert [one["guard"] for one in data["fired"]] == [
        "gold_drop",
        "entropy_collapse",
        "truncation",
    ]


@pytest.mark.parametrize(
    ("reason", "long", "short"),
    [
        (StopReason.DONE, "", ""),
        (StopReason.PRUNED, "", ""),
        (StopReason.STALLED, "ended by the guard stalled at step 30", ", where the guard stalled"),
        (StopReason.DIVERGED, "diverged at step 30: stop before", ", where it diverged"),
    ],
)
def test_an_end_by_a_guard_is_part_of_the_setting(
    tmp_path: Path, reason: StopReason, long: str, short: str
) -> None:
    (row,) = guarded(tmp_path, [trial(0.1, steps=30, reason=reason)]).trials
    assert long in guard_end(row)
    assert short in guard_end_short(row)
    assert bool(guard_end(row)) is bool(long)


def test_a_guard_that_is_too_late_for_the_trial_is_not_called_silent(tmp_path: Path) -> None:
    trainer = {**SPEC["trainer"], "steps": 12}
    study = guarded(tmp_path, [trial(0.1, steps=12)], trainer=trainer, evaluate={"every": 10})
    found = find_guards(study)
    assert found.silent == ("jump", "negative_kl", "local_kl", "proxy_spread")
    assert found.could_not["stalled"] == "2 evaluations after step 20"
    assert found.could_not["gold_drop"] == "2 evaluations after step 10"
    assert not {*found.silent} & {*found.could_not}
    assert guard_data(study)["could_not_fire"] == found.could_not


def test_a_guard_of_kl_that_waits_longer_than_a_trial_is_not_called_silent(tmp_path: Path) -> None:
    for patience, is_silent in ((79, True), (80, False)):
        kl = {"limit": 1, "over": "steps", "patience": patience}
        found = find_guards(guarded(tmp_path / str(patience), [trial(0.1)], guards={"kl": kl}))
        assert ("kl" in found.silent, "kl" in found.could_not) == (is_silent, not is_silent)
