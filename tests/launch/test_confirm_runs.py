"""The whole command on the built-in task, trained for a few steps: judged on test prompts, resumed, seen by a second gold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.confirm.looks import read_looks
from kltune.confirm.result import ConfirmResult
from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch.confirm import ConfirmRequest, run_confirm
from kltune.launch.request import SweepRequest
from kltune.launch.sweep import run_sweep
from kltune.metrics.jsonl import read_json
from kltune.tasks.kitchen.task import splits
from kltune.trial.record import read_samples, read_trial

pytestmark = pytest.mark.slow

SPEC = """
name: few
task: kitchen
model: {base: "builtin:kitchen", rank: 2}
trainer: {steps: 2, prompts: 2, group_size: 2, max_new_tokens: 8, learning_rate: 1e-3}
search: {beta: {log: [1e-2, 1], zero: true}, penalty: {choice: [k2-loss]}, controller: {choice: [fixed]}}
evaluate: {every: 1, prompts: 6, samples: 2}
budget: {trials: 2, slots: 1, workers: 1}
tracking: {enabled: false}
"""
GOLD = "def short(prompts, completions):\n    return [-len(c) for c in completions]\n"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "judge.py").write_text(GOLD, encoding="utf-8")
    path = folder / "study"
    assert run_sweep(SweepRequest(folder / "spec.yaml", path)) is ExitCode.DONE
    return path


def test_every_setting_is_judged_once_on_every_test_prompt(
    study: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {p: p.stat().st_mtime_ns for p in (study / "trials").rglob("*") if p.is_file()}
    gold = f"{study.parent / 'judge.py'}:short"
    request = ConfirmRequest(study, top=2, seeds=3, gold=gold, as_json=True)
    assert run_confirm(request) is ExitCode.DONE
    result = ConfirmResult.from_json(json.loads(capfd.readouterr().out))
    test = [prompt.id for prompt in splits().test]
    assert result.num_prompts == len(test)
    assert [j.gold for j in result.judgements][-1] == gold
    runs = sorted((study / "confirm" / "runs").iterdir())
    assert len(runs) == 3 * len(result.arms)
    for run in runs:
        record = read_trial(run)
        (row,) = record.evals
        assert len(row["gold_by_prompt"]) == len(test)
        rows = read_samples(run, row["step"])
        assert [r["prompt_id"] for r in rows] == [t for t in test for _ in range(2)]
    # The untrained start is the same policy with the same uniforms: no KL.
    assert result.arms[-1].kl_token == pytest.approx(0, abs=1e-6)
    assert len(read_looks(study)) == 1
    after = {p: p.stat().st_mtime_ns for p in (study / "trials").rglob("*") if p.is_file()}
    assert after == before
    assert read_json(study / "confirm" / "confirm.json")["seeds"] == list(result.seeds)


def test_runs_that_are_there_are_not_made_again(
    study: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_confirm(ConfirmRequest(study, top=2, seeds=3))
    first = capfd.readouterr()
    runs = {p: p.stat().st_mtime_ns for p in (study / "confirm" / "runs").rglob("*.jsonl")}
    assert run_confirm(ConfirmRequest(study, top=2, seeds=3)) is ExitCode.DONE
    again = capfd.readouterr()
    assert "loading the model" not in again.err
    assert {p: p.stat().st_mtime_ns for p in (study / "confirm" / "runs").rglob("*.jsonl")} == runs
    assert first.out.splitlines()[0] == again.out.splitlines()[0]


def test_a_dry_run_says_what_it_would_do_and_does_nothing(
    study: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    looks = len(read_looks(study))
    assert (
        run_confirm(ConfirmRequest(study, top=2, seeds=50, dry_run=True, as_json=True))
        is ExitCode.DONE
    )
    facts = json.loads(capfd.readouterr().out)
    assert facts["runs_missing"] >= 47
    assert facts["seconds"] > 0
    assert len(read_looks(study)) == looks


def test_one_run_that_is_left_is_one(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = max((study / "confirm" / "runs").iterdir())
    aside = run.rename(study.parent / run.name)
    try:
        run_confirm(ConfirmRequest(study, top=2, seeds=3, dry_run=True))
    finally:
        aside.rename(run)
    said = capfd.readouterr().err
    assert "\n1 run to do: about " in said
    assert "judged once" not in said


def test_a_second_gold_that_does_not_fit_is_refused(study: Path) -> None:
    wrong = study.parent / "wrong.py"
    wrong.write_text("def g(prompts, completions, spice):\n    return [0.0 for _ in completions]\n")
    with pytest.raises(SpecError, match=r"--gold: .*needs the column\(s\) spice"):
        run_confirm(ConfirmRequest(study, top=2, seeds=3, gold=f"{wrong}:g"))


def test_prompts_that_changed_since_are_refused(study: Path) -> None:
    path = study / "inputs.json"
    kept = path.read_text()
    try:
        path.write_text(kept.replace('"prompts (test)": "', '"prompts (test)": "0'))
        with pytest.raises(StudyError, match=r"prompts \(test\) changed"):
            run_confirm(ConfirmRequest(study, top=2, seeds=3))
    finally:
        path.write_text(kept)
