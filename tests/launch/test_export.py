from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confirm_case import judged, result_of
from confirm_case import study as confirmed_study
from fake_study import FakeTrial, trial, typical_trials, write_study

from kltune.errors import ExitCode, SpecError, StudyError
from kltune.export.target import Sizes
from kltune.export.winner import recommended
from kltune.launch.export import EXPORTERS, ExportRequest, make_export, run_export
from kltune.metrics.jsonl import write_json
from kltune.report.recommend import NoAnswer
from kltune.report.rows import read_study
from kltune.spec.penalty import Penalty
from kltune.spec.trial import ControllerKind
from kltune.trial.outcome import StopReason


def study(folder: Path, trials: list[FakeTrial] | None = None, **spec: Any) -> Path:
    return write_study(folder / "study", trials or typical_trials(), **spec)


def loss_trials() -> list[FakeTrial]:
    return [trial(0.05), trial(0.1), trial(0.2)]


@pytest.mark.parametrize("to", EXPORTERS)
def test_a_study_is_written_for_every_framework(
    to: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "there.txt"
    path = study(tmp_path, loss_trials())
    assert run_export(ExportRequest(path, to, out=out)) is ExitCode.DONE
    text = out.read_text(encoding="utf-8")
    assert f"{to} " in text
    assert "from study kitchen, trial" in text
    assert "hard KL limit: 0.5 nats/token" in text
    shown = capfd.readouterr()
    assert shown.out == ""
    assert f"wrote {out}" in shown.err
    assert run_export(ExportRequest(path, to)) is ExitCode.DONE
    assert capfd.readouterr().out == text


def test_json_goes_to_stdout_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = study(tmp_path)
    assert run_export(ExportRequest(path, "json", sizes=Sizes(batch=128))) is ExitCode.DONE
    facts = json.loads(capfd.readouterr().out)
    assert facts["converted"]["completions_per_step"] == 128
    assert facts["source"]["study"] == "kitchen"


def test_no_feasible_trial_is_exit_3_with_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = study(tmp_path, objective={"metric": "gold_peak", "kl_limit": 1e-6})
    assert run_export(ExportRequest(path, "verl")) is ExitCode.NO_FEASIBLE_TRIAL
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "No feasible trial" in shown.err
    assert "Nothing to export." in shown.err


def test_a_refusal_names_the_studys_best_trial_that_would_go(tmp_path: Path) -> None:
    trials = [
        trial(0.1, penalty=Penalty.K1_REWARD, value=2.0),
        trial(0.1, penalty=Penalty.K3_LOSS, value=1.0),
        trial(0.2, penalty=Penalty.K2_LOSS, value=1.5),
        trial(0.3, penalty=Penalty.K2_LOSS, value=9.0, origin="noise:5"),
    ]
    path = study(tmp_path, trials)
    with pytest.raises(SpecError) as caught:
        run_export(ExportRequest(path, "trl", trial=0))
    message = str(caught.value)
    assert "in the reward" in message
    said = "trl can run is trial 2 (k2-loss 0.2), value 1.500 against 2.000 on the select prompts, one seed: --trial 2"
    assert said in message
    pruned = trial(0.2, reason=StopReason.PRUNED, steps=40)
    alone = study(tmp_path / "alone", [trials[0], pruned])
    with pytest.raises(SpecError) as caught:
        run_export(ExportRequest(alone, "trl"))
    assert "other trials" not in str(caught.value)


def test_another_trial_and_release_can_be_asked_for(tmp_path: Path) -> None:
    path, out = study(tmp_path), tmp_path / "x.yaml"
    adaptive = next(
        n
        for n, t in enumerate(typical_trials())
        if t.setting.controller is ControllerKind.PROPORTIONAL
        and t.setting.penalty is Penalty.K1_REWARD
    )
    request = ExportRequest(path, "verl", trial=adaptive, version="0.7.1", out=out)
    assert run_export(request) is ExitCode.DONE
    text = out.read_text(encoding="utf-8")
    assert (
        f"trial {adaptive} (chosen by --trial" in text or f"trial {adaptive} (recommended" in text
    )
    assert 'type: "adaptive"' in text
    assert "0.7.1" in text


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"to": "trlx"}, "--to: must be one of trl, verl"),
        ({"to": "json", "version": "1"}, "--version: has no meaning"),
        ({"framework": "verl"}, "--framework: only with --to tripwire"),
        ({"to": "tripwire", "framework": "nemo-rl"}, "--framework: must be one of"),
        ({"to": "peft"}, "--out: needed"),
        (
            {"to": "peft", "out": Path("there"), "sizes": Sizes(batch=8)},
            "have no meaning with --to peft",
        ),
        ({"study_path": Path("nowhere")}, "no such folder"),
        ({"out": Path()}, "give the path of a file"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_read(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=problem):
        run_export(ExportRequest(**{"study_path": tmp_path, "to": "verl", **changes}))


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not a study folder"):
        run_export(ExportRequest(tmp_path, "verl"))


@pytest.mark.parametrize("framework", [None, "verl", "openrlhf"])
def test_a_tripwire_is_written_for_the_framework(
    framework: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = study(tmp_path, loss_trials())
    assert run_export(ExportRequest(path, "tripwire", framework=framework)) is ExitCode.DONE
    text = capfd.readouterr().out
    compile(text, "tripwire.py", "exec")
    assert framework is None or framework.lower() in text.lower()


def test_an_absent_folder_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    out = tmp_path / "absent" / "x.yaml"
    with pytest.raises(SpecError, match="there is no folder"):
        run_export(ExportRequest(tmp_path, "verl", out=out))


def test_a_file_that_was_there_is_said_to_be_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "there.txt"
    out.write_text("old", encoding="utf-8")
    run_export(ExportRequest(study(tmp_path, loss_trials()), "verl", out=out, force=True))
    assert f"replaced {out}" in capfd.readouterr().err
    assert out.read_text(encoding="utf-8") != "old"


def test_the_study_s_database_is_not_written_over_by_an_export(tmp_path: Path) -> None:
    path = study(tmp_path, loss_trials())
    (path / "study.db").write_text("trials", encoding="utf-8")
    for force in (False, True):
        request = ExportRequest(path, "verl", out=path / "study.db", force=force)
        with pytest.raises(SpecError, match=r"--out: .*study\.db belongs to the study itself"):
            run_export(request)
    assert (path / "study.db").read_text(encoding="utf-8") == "trials"
    again = ExportRequest(path, "verl", out=tmp_path / "verl.yaml")
    assert run_export(again) == run_export(again), "its own earlier output"


def test_force_without_a_file_has_no_meaning(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--force: only with --out FILE"):
        ExportRequest(tmp_path, "verl", force=True).check()


@pytest.mark.parametrize("to", ["verl", "json", "tripwire"])
def test_a_trial_that_broke_the_limit_is_warned_of_first(
    to: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = study(tmp_path, loss_trials(), objective={"metric": "gold_peak", "kl_limit": 1e-6})
    run_export(ExportRequest(path, to, trial=0))
    shown = capfd.readouterr()
    assert shown.err.startswith("warning: trial 0 is infeasible")
    assert "trial 0 is infeasible" in shown.out


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_tables_of_all_trials_are_written(
    to: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tables"
    infeasible = study(tmp_path, objective={"metric": "gold_peak", "kl_limit": 1e-6})
    assert run_export(ExportRequest(infeasible, to, out=out)) is ExitCode.DONE
    shown = capfd.readouterr()
    assert shown.out == ""
    for name in ("trials", "steps", "evals", "samples"):
        assert (out / f"{name}.{to}").stat().st_size > 0
        assert f"wrote {out / name}.{to}" in shown.err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({}, "--out: needed with --to csv"),
        ({"framework": "trl"}, "--framework: only with --to tripwire"),
        ({"version": "1"}, "--version: has no meaning with --to csv"),
        ({"trial": 3}, "--trial: has no meaning with --to csv"),
        ({"sizes": Sizes(batch=8)}, "have no meaning with --to csv"),
    ],
)
def test_flags_without_a_meaning_for_tables_are_refused(
    flags: dict[str, Any], told: str, tmp_path: Path
) -> None:
    path = study(tmp_path, loss_trials())
    where = {} if not flags else {"out": tmp_path / "t"}
    with pytest.raises(SpecError) as caught:
        run_export(ExportRequest(path, "csv", **where, **flags))
    assert told in str(caught.value)
    assert not (tmp_path / "t").exists()


def test_tables_do_not_overwrite_what_is_not_theirs(tmp_path: Path) -> None:
    path = study(tmp_path, loss_trials())
    with pytest.raises(SpecError, match="holds other files"):
        run_export(ExportRequest(path, "csv", out=path))


def test_tables_that_stand_there_are_replaced_only_when_told(tmp_path: Path) -> None:
    path, out = study(tmp_path, loss_trials()), tmp_path / "tables"
    out.mkdir()
    (out / "trials.csv").write_text("my own", encoding="utf-8")
    with pytest.raises(SpecError, match=r"has trials\.csv already; --force replaces them"):
        run_export(ExportRequest(path, "csv", out=out))
    assert (out / "trials.csv").read_text(encoding="utf-8") == "my own"
    run_export(ExportRequest(path, "csv", out=out, force=True))
    assert (out / "trials.csv").read_text(encoding="utf-8") != "my own"


def test_an_export_can_be_had_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = make_export(ExportRequest(study(tmp_path, loss_trials()), "verl"))
    assert not isinstance(found, NoAnswer)
    assert found.text is not None
    assert found.text.startswith("# verl ")
    assert found.warnings
    none = study(tmp_path / "b", objective={"metric": "gold_peak", "kl_limit": 1e-6})
    assert isinstance(make_export(ExportRequest(none, "verl")), NoAnswer)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def changed(tmp_path: Path) -> tuple[Path, int, int]:
    """A study whose confirmation puts another trial above the recommended one, and both numbers."""
    path = confirmed_study(tmp_path / "s")
    best = recommended(read_study(path))
    assert best is not None
    assert best.stop is not None
    own, other = best.source.trial, 0
    result = result_of(judged([0.2, 1.0, 0.2, 0.0]))
    numbers = (own, other, None, None)
    arms = [replace(arm, number=n) for arm, n in zip(result.arms, numbers, strict=True)]
    arms[0] = replace(arms[0], kl_token=0.0625, kl_seq=0.75, stop=best.stop.peak_step)
    write_json(path / "confirm" / "confirm.json", replace(result, arms=tuple(arms)).as_json())
    return path, own, other


def test_the_doubt_that_a_confirmation_casts_is_in_the_json(
    changed: tuple[Path, int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    path, _, other = changed
    run_export(ExportRequest(path, "json"))
    out, err = capfd.readouterr()
    told = [line.removeprefix("warning: ") for line in err.splitlines()]
    assert told[0].startswith(f"the confirmation puts trial {other} above it")
    assert json.loads(out)["warnings"] == told


def test_gold_and_kl_of_an_export_are_of_the_same_prompts(changed: tuple[Path, int, int]) -> None:
    path, own, _ = changed
    yaml = " ".join(_made(path, "verl").replace("\n#", "").split())
    assert (
        "KL 0.0625 nats/token = 0.75 nats/sequence at a mean of 12 tokens (on 8 fresh seeds,"
        in yaml
    )
    wire = " ".join(_made(path, "tripwire").replace("\n#", "").split())
    assert "exact KL 0.0625 nats/token = 0.75 nats/sequence at 12 tokens per completion" in wire
    assert "(8 fresh seeds, 32 test prompts). " in wire
    assert "KL measured on 8 fresh seeds, 32 test prompts." in wire
    assert "select prompts" not in wire
    assert "\nPEAK = 0.0625\n" in _made(path, "tripwire")
    facts = json.loads(_made(path, "json"))
    assert facts["stop"]["basis"] == "on 8 fresh seeds, 32 test prompts"
    asked = _made(path, "tripwire", trial=own - 1)  # not confirmed itself
    assert "select prompts" in " ".join(asked.replace("\n#", "").split())


def _made(path: Path, to: str, **flags: Any) -> str:
    found = make_export(ExportRequest(path, to, **flags))
    assert not isinstance(found, NoAnswer)
    assert found.text is not None
    return found.text
