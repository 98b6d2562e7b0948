from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_study import typical_trials, write_study

from kltune.errors import ExitCode, SpecError
from kltune.launch.transfer import TransferRequest, run_transfer
from kltune.transfer.result import TransferResult


def studies(folder: Path, *names: str) -> tuple[Path, ...]:
    bases = {"small": "builtin:kitchen-small", "medium": "builtin:kitchen"}
    return tuple(
        write_study(folder / f"kitchen-{name}", typical_trials(), model={"base": bases[name]})
        for name in names
    )


def test_two_sizes_are_compared_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = studies(tmp_path, "small", "medium")
    monkeypatch.chdir(tmp_path)
    assert run_transfer(TransferRequest(paths, as_json=True)) is ExitCode.DONE
    shown = capfd.readouterr()
    written = tmp_path / "studies/transfer/kitchen/transfer.json"
    facts = json.loads(shown.out)
    assert facts == json.loads(written.read_text(encoding="utf-8"))
    assert TransferResult.from_json(facts).studies[0].parameters == 92_688
    assert written.with_name("transfer.png").is_file()
    assert f"wrote {Path('studies/transfer/kitchen/transfer.json')}" in shown.err
    assert run_transfer(TransferRequest(paths)) is ExitCode.DONE
    assert (tmp_path / "studies/transfer/kitchen-2/transfer.json").is_file()
    assert "What moves with size" in capfd.readouterr().out


def test_bad_input_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (only,) = studies(tmp_path, "small")
    request = TransferRequest((only,), parameters=(1, 2), out=only / "spec.yaml")
    with pytest.raises(SpecError) as refusal:
        run_transfer(request)
    told = str(refusal.value)
    assert "at least two study folders are needed, of other model sizes (got 1)" in told
    assert "--parameters: one number for each STUDY (1) is needed (got 2)" in told
    assert "--out:" in told
    with pytest.raises(SpecError, match=r"given twice"):
        run_transfer(TransferRequest((only, only)))
    with pytest.raises(SpecError, match="no such folder"):
        run_transfer(TransferRequest((only, tmp_path / "gone")))
    with pytest.raises(SpecError, match="not a study folder"):
        run_transfer(TransferRequest((only, tmp_path)))


def test_studies_of_other_questions_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (small,) = studies(tmp_path, "small")
    other = write_study(tmp_path / "other", typical_trials(), seed=1)
    with pytest.raises(SpecError, match="seed: 0 in kitchen-small, 1 in other"):
        run_transfer(TransferRequest((small, other), out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
