"""``kltune export --to tripwire`` of a whole study: a file that runs, for each trainer that it reads."""

from __future__ import annotations

from pathlib import Path

import fake_study
import pytest
import tripwire_case as case

from kltune.errors import ExitCode, SpecError
from kltune.export.target import Sizes
from kltune.launch.export import ExportRequest, run_export
from kltune.spec.penalty import Penalty


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "kitchen"
    return fake_study.write_study(folder, fake_study.typical_trials())


@pytest.mark.parametrize("framework", [None, "verl", "openrlhf"])
def test_the_file_passes_its_own_test(
    study: Path, tmp_path: Path, framework: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "guard.py"  # whatever it is called
    request = ExportRequest(study, "tripwire", trial=1, framework=framework, out=out)
    assert run_export(request) is ExitCode.DONE
    made = case.load(out.read_text(encoding="utf-8"), tmp_path)
    assert made.selftest() == []
    assert f"for a run of {framework or 'trl'} " in (made.__doc__ or "")
    assert f"wrote {out}" in capsys.readouterr().err


def test_limits_per_token_do_not_move_with_the_targets_length(study: Path, tmp_path: Path) -> None:
    limits: list[float] = []
    for tokens in (10.0, 30.0):
        out = tmp_path / f"{tokens:g}.py"
        sizes = Sizes(mean_tokens=tokens)
        run_export(ExportRequest(study, "tripwire", trial=1, sizes=sizes, out=out))
        limits.append(case.load(out.read_text(encoding="utf-8"), tmp_path).LIMIT)
    assert limits == [0.5, 0.5]


def test_a_trainer_whose_log_is_not_read_is_refused(study: Path) -> None:
    with pytest.raises(SpecError, match="--framework: must be one of trl, verl, openrlhf"):
        run_export(ExportRequest(study, "tripwire", framework="nemo-rl"))


def test_without_a_framework_the_first_that_can_run_the_setting_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [fake_study.trial(0.1, penalty=Penalty.K1_REWARD)]
    path, out = fake_study.write_study(tmp_path / "s", trials), tmp_path / "t.py"
    assert run_export(ExportRequest(path, "tripwire", out=out)) is ExitCode.DONE
    assert "for a run of verl " in out.read_text(encoding="utf-8")
    assert "the tripwire reads the log of verl: --framework trl says why" in capsys.readouterr().err
    with pytest.raises(SpecError) as caught:
        run_export(ExportRequest(path, "tripwire", framework="trl", out=out))
    assert str(caught.value).startswith("--framework trl: ")
    assert "take --framework verl" in str(caught.value)
    assert "--to " not in str(caught.value)
    alone = fake_study.write_study(
        tmp_path / "other", [fake_study.trial(0.1, penalty=Penalty.JEFFREYS_LOSS)]
    )
    with pytest.raises(SpecError, match="--framework trl: "):
        run_export(ExportRequest(alone, "tripwire"))
