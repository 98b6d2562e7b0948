"""The placement of a study: timed on the spot, written down, kept by the next session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from spec_files import minimal, write

from kltune.launch import calibrate
from kltune.launch.assemble import find_inputs, load_ground
from kltune.launch.calibrate import Site, placed_bank
from kltune.launch.kept_placement import FILE
from kltune.launch.placement import Calibration, Placement
from kltune.launch.threads import torch_threads
from kltune.metrics.jsonl import read_json, write_json
from kltune.metrics.record import RewardScale
from kltune.spec.load import load_spec
from kltune.spec.trial import TrialSpec
from kltune.tasks.protocol import Sample
from tests.fake_bank import FakeBank

SCALE = RewardScale(sigma=1.0, std=1.0, mean=0.0, num_groups=1, mean_tokens=1.0)
SETTING = TrialSpec(beta=0.0, learning_rate=1e-3)
needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one core leaves no choice"
)


def site_of(folder: Path, *overrides: str) -> Site:
    quick = ("trainer.max_new_tokens=4", "trainer.steps=2", "evaluate.prompts=2")
    spec = load_spec(write(folder, minimal()), (*quick, *overrides))
    ground = load_ground(spec.spec, find_inputs(spec), None)
    return Site(spec, ground, SCALE, folder / "study")


def chosen(site: Site, **how: bool) -> Calibration:
    with torch_threads(2), placed_bank(site, **how) as (bank, calibration):
        assert bank.num_slots == calibration.placement.slots
        assert bank.free_slots() == tuple(range(bank.num_slots))  # the scratch trial has left
        return calibration


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take no time to measure."""
    monkeypatch.setattr(calibrate, "step_seconds", lambda bank, setting: 0.2)
    monkeypatch.setattr(calibrate, "peak_gflops", lambda device: 100.0)


def test_one_worker_is_never_timed_against_several(tmp_path: Path) -> None:
    site = site_of(tmp_path, "budget.workers=1")
    found = chosen(site)
    assert (found.placement.workers, found.placement.slots) == (1, 1)
    assert (found.alone_step_s, found.placed_step_s) == (None, None)
    assert found.peak_gflops is not None
    assert found.peak_gflops > 1
    kept = read_json(tmp_path / "study" / FILE)
    assert kept["schema"] == 1
    assert {"workers": 1, "slots": 1, "device": "cpu"}.items() <= kept.items()
    assert kept["asked"] == {"slots": "auto", "workers": 1}


@needs_two_cores
def test_a_study_too_short_to_gain_is_left_to_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], untimed: None
) -> None:
    found = chosen(site_of(tmp_path))
    assert found.placement == Placement(1, 1, 2)
    assert (found.alone_step_s, found.placed_step_s) == (0.2, 0.2)
    assert capsys.readouterr().err.startswith("1 worker of 2 threads: 0.2 s per trial-step (")


def timed(
    monkeypatch: pytest.MonkeyPatch, site: Site, alone_s: float, few_s: float, placed_s: float
) -> tuple[Calibration, list[int], list[str]]:
    """Choose by these seconds, with workers that are none; also which workers ran, and what was closed."""
    seconds, threads, closed = iter([alone_s, few_s, placed_s]), [], []

    def measure(bank: object, setting: TrialSpec) -> float:
        threads.append(torch.get_num_threads())
        return next(seconds)

    def start(where: Site, placement: Placement, held: ExitStack) -> FakeBank:
        held.callback(closed.append, placement.describe())
        held.enter_context(torch_threads(placement.threads))
        return FakeBank(placement.slots)

    monkeypatch.setattr(calibrate, "step_seconds", measure)
    monkeypatch.setattr(calibrate, "_started", start)
    return chosen(site), threads, closed


LONG = ("trainer.steps=1000",)


@needs_two_cores
def test_workers_that_are_seen_to_gain_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, threads, closed = timed(monkeypatch, site_of(tmp_path, *LONG), 0.21, 0.24, 0.13)
    assert found == Calibration(Placement(2, 2, 1), 0.21, 0.13, found.peak_gflops)
    assert threads[:2] == [2, 1]
    assert closed == ["2 workers of 1 thread"]  # when the block ended
    kept = read_json(tmp_path / "study" / FILE)
    assert (kept["cores"], kept["considered"]["workers"]) == (2, 2)
    assert capsys.readouterr().err == (
        "2 workers of 1 thread: 0.13 s per trial-step against 0.21 s alone\n"
    )


@needs_two_cores
@pytest.mark.parametrize(
    ("few_s", "placed_s", "closed", "said"),
    [
        (0.24, 0.205, ["2 workers of 1 thread"], "(2 workers of 1 thread take 0.205 s)"),
        (0.40, 9.9, [], "(2 workers of 1 thread would take at best 0.2 s)"),
    ],
)
def test_workers_that_gain_nothing_are_ended_or_never_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    few_s: float,
    placed_s: float,
    closed: list[str],
    said: str,
) -> None:
    site = site_of(tmp_path, *LONG)
    found, _, ended = timed(monkeypatch, site, 0.21, few_s, placed_s)
    assert found == Calibration(Placement(1, 1, 2), 0.21, 0.21, found.peak_gflops)
    assert ended == closed
    assert capsys.readouterr().err == f"1 worker of 2 threads: 0.21 s per trial-step {said}\n"


class Raises:
    name = "raises"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        raise ValueError("no number")


@needs_two_cores
def test_what_can_not_be_timed_runs_in_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = site_of(tmp_path)
    ground = site.ground
    failing = replace(ground, data=replace(ground.data, proxy=Raises()))
    found = chosen(replace(site, ground=failing))
    assert found.placement == Placement(1, 1, 2)
    assert "several could not be timed (scorer raises raised ValueError" in capsys.readouterr().err


def test_a_resumed_study_keeps_its_placement(tmp_path: Path, untimed: None) -> None:
    site = site_of(tmp_path)
    first = chosen(site)
    assert chosen(site) == first
    path = tmp_path / "study" / FILE
    write_json(path, {**read_json(path), "placed_step_s": 123.0, "threads": 1})
    again = chosen(site)
    assert (again.placed_step_s, again.placement.threads) == (123.0, 1)


@pytest.mark.parametrize(
    ("changed", "is_kept"),
    [
        ({"cores": 64}, False),  # there were more
        ({"cores": 1}, True),  # there are more now: trials repeat all the same
        ({"device": "cuda"}, False),
        ({"asked": {"slots": 2, "workers": "auto"}}, False),
        ({"considered": {"workers": 4, "slots": 4, "threads": 1}}, False),
    ],
    ids=lambda value: str(value)[:24],
)
@needs_two_cores
def test_another_machine_or_wish_chooses_anew_and_says_so(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    untimed: None,
    changed: dict[str, object],
    is_kept: bool,
) -> None:
    site = site_of(tmp_path)
    chosen(site)
    path = tmp_path / "study" / FILE
    write_json(path, {**read_json(path), "placed_step_s": 123.0, **changed})
    capsys.readouterr()
    assert (chosen(site).placed_step_s == 123.0) is is_kept
    assert ("chosen anew" in capsys.readouterr().err) is not is_kept


def test_nothing_is_written_by_a_dry_run_or_after_a_stop(tmp_path: Path, untimed: None) -> None:
    site = site_of(tmp_path)
    chosen(site, is_kept=False)
    chosen(replace(site, should_stop=lambda: "interrupted"))
    assert not (tmp_path / "study").exists()


def test_a_study_that_is_over_is_not_timed(tmp_path: Path) -> None:
    found = chosen(site_of(tmp_path), is_over=True)
    assert (found.alone_step_s, found.peak_gflops) == (None, None)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(("threads", "words"), [(1, "1 thread"), (2, "2 threads")])
def test_more_workers_than_threads_are_noted_with_what_limits_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    untimed: None,
    threads: int,
    words: str,
) -> None:
    monkeypatch.setattr(calibrate, "allowed_threads", lambda: threads)
    monkeypatch.setattr(calibrate, "_started", lambda site, placed, held: FakeBank(placed.slots))
    chosen(site_of(tmp_path, "budget.workers=3"))
    assert capsys.readouterr().err == (
        f"note: budget.workers: 3 share {words}, all that this process may use (its cores, or fewer "
        "by OMP_NUM_THREADS)\n"
    )
