from __future__ import annotations

import math

import numpy as np
import pytest
from generated_trials import Noise, cliff, make_record, rl_law

from kltune.statistics.law import LawForm, LawPoints, law_points
from kltune.statistics.run_noise import usual_run_noise

LAW = rl_law(0.9, 0.6)


def points(noise: Noise, number: int, law=LAW, seed: int = 1) -> list[LawPoints]:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    records = [make_record(rng, law, noise) for _ in range(number)]
    return [law_points(r.kl_S, r.gold_SN) for r in records]


def test_the_usual_departure_is_found() -> None:
    run = usual_run_noise(points(Noise(run_sd=0.15, run_rho=0.6), 200), LawForm.RL)
    assert run is not None
    at_middle = run.sd * math.sqrt(2)
    assert at_middle == pytest.approx(0.15, rel=0.25)
    assert run.middle == pytest.approx(np.sqrt((2.5 + 3.6) / 2), rel=0.1)


def test_prompts_alone_are_no_run_noise() -> None:
    run = usual_run_noise(points(Noise(), 40), LawForm.RL)
    assert run is not None
    assert run.sd < 0.02


def test_a_few_runs_off_the_law_do_not_make_it_usual() -> None:
    wild = points(Noise(run_sd=1.0), 5, seed=2)
    run = usual_run_noise(points(Noise(), 20) + wild, LawForm.RL)
    assert run is not None
    assert run.sd < 0.05


def test_a_departure_that_all_share_is_the_laws_fault_and_no_run_noise() -> None:
    run = usual_run_noise(points(Noise(), 24, law=cliff), LawForm.RL)
    assert run is not None
    assert run.sd < 0.1  # each alone would show 0.24


def test_four_trials_tell_nothing() -> None:
    assert usual_run_noise(points(Noise(), 4), LawForm.RL) is None
    short = [LawPoints(p.d_P[:3], p.gain_PN[:3]) for p in points(Noise(), 9)]
    assert usual_run_noise(short, LawForm.RL) is None
