from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from diagnose_case import LOGS

from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch.diagnose import DiagnoseRequest, run_diagnose


def log(name: str) -> str:
    return str(LOGS / f"{name}.json")


@pytest.mark.parametrize(
    ("name", "fail_on", "code"),
    [
        ("healthy", "warn", ExitCode.DONE),
        ("beta_zero", None, ExitCode.DONE),
        ("beta_zero", "fail", ExitCode.DONE),
        ("beta_zero", "warn", ExitCode.GATE_FAILED),
        ("beta_huge", None, ExitCode.DONE),
        ("beta_huge", "warn", ExitCode.GATE_FAILED),
        ("beta_huge", "fail", ExitCode.GATE_FAILED),
    ],
)
def test_the_exit_code_is_4_from_the_grade_that_was_asked_for(
    capsys: pytest.CaptureFixture[str], name: str, fail_on: str | None, code: ExitCode
) -> None:
    request = DiagnoseRequest(log(name), fail_on=fail_on)  # type: ignore[arg-type]
    assert run_diagnose(request) is code
    assert name in capsys.readouterr().out


def test_json_is_all_that_reaches_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_diagnose(DiagnoseRequest(log("beta_huge"), as_json=True)) is ExitCode.DONE
    whole = json.loads(capfd.readouterr().out)
    assert whole["condition"] == "kl_stalled (beta_too_large)"


def test_an_absent_log_is_a_message_that_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"no such file.*trainer_state\.json") as caught:
        run_diagnose(DiagnoseRequest(str(tmp_path / "nothing")))
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("tokens", [0.0, -1.0, float("nan")])
def test_a_length_of_nothing_is_refused(tokens: float) -> None:
    with pytest.raises(SpecError, match="--mean-tokens must be above 0 tokens"):
        run_diagnose(DiagnoseRequest(log("healthy"), mean_tokens=tokens))


def test_a_unit_that_the_user_says_wins_and_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    request = DiagnoseRequest(log("learning_rate_x100"), kl_unit="sequence", as_json=True)
    run_diagnose(request)
    whole = json.loads(capfd.readouterr().out)
    units = {one["quantity"]: one["unit"] for one in whole["readings"]}
    assert units["kl_seq"] == "nats/sequence"
    # 5 nats per sequence are no explosion; at 30 tokens that is 0.2 per token.
    assert "kl_explosion" not in {one["name"] for one in whole["findings"]}
    assert "--kl-unit" in json.dumps(whole)


def test_two_runs_are_compared_and_gated(capsys: pytest.CaptureFixture[str]) -> None:
    same = DiagnoseRequest(log("healthy"), log("healthy"), fail_on="fail")
    other = DiagnoseRequest(log("healthy"), log("beta_huge"), fail_on="fail")
    assert run_diagnose(same) is ExitCode.DONE
    assert "same in every number" in capsys.readouterr().out
    assert run_diagnose(other) is ExitCode.GATE_FAILED
    assert "part beyond the noise within a run at step" in " ".join(capsys.readouterr().out.split())


def study(folder: Path) -> Path:
    """A study of two trials: one healthy, one that went over."""
    for number, top in enumerate((0.05, 8.0)):
        trial = folder / "trials" / f"{number:05d}"
        trial.mkdir(parents=True)
        setting = {"beta": 0.1, "penalty": "k1-reward", "controller": "fixed"}
        setting |= {"learning_rate": 1e-3, "seed": number}
        head = {"schema": 1, "trial": number, "attempt": 1}
        config = {**head, "origin": "sampled", "setting": setting, "sigma_r": 1.0}
        config |= {"kl_unit": "token", "beta_unit": "reward", "started_at": "2026-01-01T00:00:00"}
        (trial / "config.json").write_text(json.dumps(config), encoding="utf-8")
        rows = [
            {**head, "step": step, "time": 0.0, "kl/exact_token": top * (step - 1) / 40}
            | {"kl/exact_seq": 10 * top * (step - 1) / 40, "train/proxy_mean": step / 40}
            for step in range(1, 41)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (trial / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return folder


def test_a_study_is_a_line_a_trial_and_run_picks_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(study(tmp_path / "study"))
    assert run_diagnose(DiagnoseRequest(path)) is ExitCode.DONE
    shown = capfd.readouterr()
    starts = [line.split()[:2] for line in shown.out.splitlines() if line[:4] in ("fail", "pass")]
    assert starts == [["fail", "00001"], ["pass", "00000"]]
    assert "--run ID" in shown.err
    run_diagnose(DiagnoseRequest(path, run="0", as_json=True))
    assert json.loads(capfd.readouterr().out)["condition"] == "healthy"
    run_diagnose(DiagnoseRequest(path, as_json=True))
    whole = json.loads(capfd.readouterr().out)
    assert (whole["grade"], len(whole["runs"])) == ("fail", 2)


def test_two_trials_of_a_study_are_compared_by_their_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = study(tmp_path / "study") / "trials"
    run_diagnose(DiagnoseRequest(str(trials / "00000"), str(trials / "00001")))
    assert "A: " in capsys.readouterr().out
    with pytest.raises(SpecError, match="holds 2 runs"):
        run_diagnose(DiagnoseRequest(str(trials.parent), str(trials / "00001")))


def test_two_seeds_of_one_setting_fail_no_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = study(tmp_path / "study") / "trials"
    a, b = str(trials / "00000"), str(trials / "00001")
    assert run_diagnose(DiagnoseRequest(a, b, fail_on="fail")) is ExitCode.DONE
    assert "Only the seed was set differently" in " ".join(capsys.readouterr().out.split())
    config = json.loads((trials / "00001" / "config.json").read_text(encoding="utf-8"))
    config["setting"]["beta"] = 0.5
    (trials / "00001" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert run_diagnose(DiagnoseRequest(a, b, fail_on="fail")) is ExitCode.GATE_FAILED


def test_nothing_is_written_beside_the_log(tmp_path: Path) -> None:
    shutil.copy(log("healthy"), tmp_path / "trainer_state.json")
    run_diagnose(DiagnoseRequest(str(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["trainer_state.json"]
