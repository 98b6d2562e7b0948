from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.diagnose.read import read_run
from kltune.errors import SpecError, StudyError
from kltune.spec.trial import KLUnit
from kltune.symptoms.curve import Quantity

_LOGS = Path(__file__).parent / "logs"


def test_a_real_trl_log_has_its_kl_in_both_units() -> None:
    (run,) = read_run(str(_LOGS / "healthy.json"))
    assert (run.framework, run.kind) == ("trl", "TRL trainer_state.json")
    kl, length = run.curve.known(Quantity.KL_TOKEN), run.curve.known(Quantity.LENGTH)
    assert len(kl) == 40
    products = [value * tokens for (_, value), (_, tokens) in zip(kl, length, strict=True)]
    assert [x for _, x in run.curve.known(Quantity.KL_SEQ)] == pytest.approx(products)
    assert run.readings[Quantity.KL_TOKEN].is_certain


def test_a_real_trl_log_at_beta_zero_has_no_kl() -> None:
    (run,) = read_run(str(_LOGS / "beta_zero.json"))
    assert Quantity.KL_TOKEN not in run.curve.values
    assert len(run.curve.known(Quantity.PROXY)) == 40


def test_an_export_of_two_runs_gives_both_or_the_one_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "wandb.csv"
    path.write_text("Step,a - train/reward,b - train/reward\n1,0.1,0.2\n", encoding="utf-8")
    assert len(read_run(str(path))) == 2
    (run,) = read_run(str(path), "b")
    assert run.curve.values[Quantity.PROXY] == (0.2,)
    with pytest.raises(StudyError, match="no run 'c'"):
        read_run(str(path), "c")


def test_the_flags_reach_the_run(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"step": 1, "kl": 0.3}) + "\n", encoding="utf-8")
    (run,) = read_run(str(path), kl_unit=KLUnit.SEQUENCE, mean_tokens=10.0)
    assert run.curve.values[Quantity.KL_TOKEN] == (0.03,)


def test_a_length_of_nothing_is_refused(tmp_path: Path) -> None:
    for length in (0.0, -1.0, float("nan")):
        with pytest.raises(SpecError, match="must be above 0 tokens"):
            read_run(str(tmp_path), mean_tokens=length)


def test_a_path_that_is_absent_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="looked for"):
        read_run(str(tmp_path / "nothing"))


def test_a_log_of_unknown_names_is_refused_with_its_names(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("step,temperature_c,wind\n1,20,3\n", encoding="utf-8")
    with pytest.raises(StudyError, match="its names are: temperature_c, wind"):
        read_run(str(path))


def test_a_kl_whose_unit_is_open_is_answered_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "wandb.csv"
    path.write_text("Step,a - train/kl\n1,0.1\n", encoding="utf-8")
    (run,) = read_run(str(path))
    assert any("--kl-unit" in note for note in run.notes)
