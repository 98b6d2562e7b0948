from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import minimal, write

from kltune.check.reward_scale import Spread, kl_in_tokens, reward_scale_line
from kltune.grade import Grade
from kltune.spec.load import load_spec
from kltune.spec.study import StudySpec

SPREAD = Spread(sigma=0.5, std=0.7, mean_tokens=10.0)


def study(folder: Path, **sections: Any) -> StudySpec:
    return load_spec(write(folder, minimal() | sections)).spec


def test_rewards_of_one_in_ten_thousand_and_a_penalty_of_a_half_warn_with_ratio_5000(
    tmp_path: Path,
) -> None:  # field case E3
    spec = study(tmp_path, search={"beta": 0.05}, objective={"kl_limit": 10}, kl_unit="sequence")
    line = reward_scale_line(Spread(1e-4, 1e-4, 20.0), spec)
    assert line.grade is Grade.WARN
    assert line.numbers["penalty_least"] == pytest.approx(0.5)
    assert line.numbers["ratio_least"] == pytest.approx(5000)
    assert "5,000 times" in line.shown


def test_a_search_around_the_spread_passes(tmp_path: Path) -> None:
    line = reward_scale_line(SPREAD, study(tmp_path, objective={"kl_limit": 0.5}))
    assert line.grade is Grade.PASS
    assert line.numbers["kl_seq"] == pytest.approx(5.0), "nats/token times ten tokens"
    assert line.numbers["ratio_most"] == pytest.approx(10.0)


def test_no_spread_fails(tmp_path: Path) -> None:
    line = reward_scale_line(Spread(0.0, 0.3, 10.0), study(tmp_path))
    assert (line.grade, line.numbers["sigma_r"]) == (Grade.FAIL, 0.0)


def test_betas_that_are_never_felt_warn(tmp_path: Path) -> None:
    line = reward_scale_line(SPREAD, study(tmp_path, search={"beta": {"log": [1e-7, 1e-6]}}))
    assert line.grade is Grade.WARN
    assert "larger" in line.remedy


def test_beta_0_alone_has_nothing_to_compare(tmp_path: Path) -> None:
    assert reward_scale_line(SPREAD, study(tmp_path, search={"beta": 0})).grade is Grade.PASS


def test_a_native_coefficient_in_the_loss_counts_in_spreads(tmp_path: Path) -> None:
    given = {"search": {"beta": 0.04}, "objective": {"kl_limit": 10}, "kl_unit": "sequence"}
    native = study(tmp_path, **given, beta_unit="native")
    line = reward_scale_line(SPREAD, native)
    assert line.numbers["ratio_least"] == pytest.approx(0.4), ".04 x 10 nats of a spread"
    paid = given | {"search": {"beta": 0.04, "penalty": "k1-reward"}}
    line = reward_scale_line(SPREAD, study(tmp_path, **paid, beta_unit="native"))
    assert line.numbers["ratio_least"] == pytest.approx(0.8), ".4 raw reward over .5"


def test_limits_are_given_per_token(tmp_path: Path) -> None:
    spec = study(
        tmp_path,
        objective={"kl_limit": 5},
        guards={"kl": {"limit": 10}},
        kl_unit="sequence",
    )
    assert kl_in_tokens(spec, 10.0) == (0.5, 1.0)
    assert kl_in_tokens(study(tmp_path), 10.0) == (None, None)
