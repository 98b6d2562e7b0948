from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from spec_files import adaptive, minimal, own_task, write

from kltune.cli import main


@dataclass(frozen=True)
class Ended:
    code: object
    out: str
    err: str


Sweep = Callable[..., Ended]


@pytest.fixture
def sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sweep:
    """``kltune sweep`` with a spec and flags, run in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(spec: object, *args: str) -> Ended:
        argv = ["kltune", "sweep", str(write(tmp_path, spec)), *args]
        monkeypatch.setattr("sys.argv", argv)
        with pytest.raises(SystemExit) as exit_:
            main()
        shown = capsys.readouterr()
        return Ended(exit_.value.code, shown.out, shown.err)

    return run


def in_search(**changes: Any) -> dict[str, Any]:
    spec = adaptive()
    spec["search"] |= changes
    return spec


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({**minimal(), "bugdet": {}}, "bugdet: Extra inputs are not permitted"),
        ({**minimal(), "trainer": {"steps": "x"}}, "trainer.steps: Input should be a number"),
        ({**minimal(), "trainer": {"steps": 1, "group_size": 1}}, "trainer.group_size: "),
        (
            {**minimal(), "trainer": {"steps": 1, "completions": 6, "group_size": 4}},
            "trainer.completions: 6 is not a multiple of group_size 4",
        ),
        (in_search(beta={"log": [0, 1]}), "search.beta.log: both bounds must be above 0"),
        (in_search(beta=0), "search.controller: proportional multiplies beta"),
        (in_search(target_kl=0), "search.target_kl: must be above 0 (got 0)"),
        (in_search(horizon=0), "search.horizon: must be above 0 (got 0)"),
        (in_search(penalty="k1-loss"), "search.penalty: estimator k1 placed in the loss"),
        ({**minimal(), "model": {"base": "./gone"}}, "model.base: no such folder"),
    ],
)
def test_a_bad_spec_is_one_message_and_exit_2_and_nothing_starts(
    tmp_path: Path, sweep: Sweep, spec: dict[str, Any], told: str
) -> None:
    ended = sweep(spec, "--json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {tmp_path}/spec.yaml: 1 problem(s)\n  {told}")
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


def test_unreadable_prompts_and_equal_functions_are_refused_together(
    tmp_path: Path, sweep: Sweep
) -> None:
    spec = own_task(tmp_path)
    spec["task"] |= {"prompts": "gone.jsonl", "gold": "rewards.py:proxy"}
    ended = sweep(spec)
    assert (ended.code, ended.out) == (2, "")
    assert "  task.prompts: no such file" in ended.err
    assert "  task.gold: is the same function as task.proxy" in ended.err
    assert not (tmp_path / "studies").exists()


def test_flags_go_over_overrides_and_overrides_over_the_file(sweep: Sweep) -> None:
    spec = {**minimal(), "baselines": ["verl-ppo", "deepseekmath"]}
    ended = sweep(spec, "--trials", "1", "--set", "budget.trials=9")
    assert ended.code == 2
    assert "  budget.trials: 1 is fewer than the 2 baselines" in ended.err


def test_every_set_counts(sweep: Sweep) -> None:
    ended = sweep(minimal(), "--set", "trainer.steps=0", "--set", "sed=1", "--dry-run")
    assert ended.code == 2
    assert "  trainer.steps: Input should be greater than 0 (got 0)" in ended.err
    assert "  sed: Extra inputs are not permitted (got 1); did you mean seed?" in ended.err


def test_a_place_that_is_none_is_named_with_those_that_are(sweep: Sweep) -> None:
    ended = sweep(minimal(), "--on", "mars")
    assert ended.code == 2
    assert "'--on': must be local or ray (got 'mars')" in ended.err
