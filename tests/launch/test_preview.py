from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from preview_case import hump, same, scored, subject
from spec_files import adaptive, minimal, write

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.preview import Drawn, PreviewRequest, Writing, run_preview
from kltune.metrics.jsonl import write_json
from kltune.preview.result import read_forecast
from kltune.spec.load import LoadedSpec, load_spec, resolved


def draw(request: PreviewRequest, loaded: LoadedSpec, study: Path | None) -> Drawn:
    return Drawn(scored(hump, samples=128), subject(48, 128), ("drawn by a stand-in",))


def never(request: PreviewRequest, loaded: LoadedSpec, study: Path | None) -> Drawn:
    raise AssertionError("nothing may be loaded")


def study_of(folder: Path, spec: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    write_json(folder / "resolved.json", resolved(load_spec(write(folder, spec)).spec))
    return folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")


def test_a_spec_without_a_study_is_answered_in_previews(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_preview(PreviewRequest(write(tmp_path, minimal())), draw) is ExitCode.DONE
    found = read_forecast(Path("studies/previews/small"))
    assert found is not None
    assert found.notes == ("drawn by a stand-in",)
    assert found.seconds > 0
    assert Path("studies/previews/small/preview.png").is_file()
    captured = capsys.readouterr()
    assert "Gold is highest at a KL of" in captured.out
    assert "wrote studies/previews/small/preview.json" in captured.err


def test_a_study_of_the_same_name_takes_it(tmp_path: Path) -> None:
    study_of(Path("studies/small"), minimal())
    run_preview(PreviewRequest(write(tmp_path, minimal())), draw)
    assert read_forecast(Path("studies/small")) is not None


def test_a_study_of_the_same_name_but_another_model_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study_of(Path("studies/small"), {**minimal(), "seed": 7})
    run_preview(PreviewRequest(write(tmp_path, minimal())), draw)
    assert read_forecast(Path("studies/small")) is None
    assert read_forecast(Path("studies/previews/small")) is not None
    assert "another model, task or way of sampling" in capsys.readouterr().err


def test_json_is_all_that_stdout_gets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_preview(PreviewRequest(write(tmp_path, minimal()), as_json=True), draw)
    row = json.loads(capfd.readouterr().out)
    assert row["schema"] == 1
    assert row["readings"][0]["verdict"] == "turns"


def test_write_puts_the_ranges_into_the_spec(tmp_path: Path) -> None:
    path = write(tmp_path, adaptive())
    run_preview(PreviewRequest(path, write=True), draw)
    found = read_forecast(Path("studies/previews/small"))
    assert found is not None
    search = load_spec(path).spec.search
    assert search.beta.log == found.suggestion.beta
    assert search.target_kl is not None
    assert search.target_kl.log == found.suggestion.target_kl
    assert path.with_name("spec.yaml.bak").is_file()


def test_a_native_beta_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, {**minimal(), "beta_unit": "native"})
    run_preview(PreviewRequest(path, write=True), draw)
    assert load_spec(path).spec.search.beta.log == (0.001, 1)
    captured = capsys.readouterr()
    assert "no range is suggested in the spec's unit" in captured.err
    assert "beta_unit is native" in captured.out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 1}, "--samples: must be at least 2"),
        ({"target": Path("nothing.yaml")}, "nothing.yaml: no such file"),
        ({"target": Path()}, "is no study folder"),
    ],
)
def test_bad_input_is_refused_before_anything_loads(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    fields = {"target": write(tmp_path, minimal()), **change}
    with pytest.raises(SpecError, match=message):
        run_preview(PreviewRequest(**fields), never)


def test_write_needs_a_spec_file(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", minimal())
    with pytest.raises(SpecError, match="--write: only with a spec file"):
        run_preview(PreviewRequest(study, write=True), never)


def test_a_broken_spec_is_refused_before_anything_loads(tmp_path: Path) -> None:
    path = write(tmp_path, {**minimal(), "kl": 1})
    with pytest.raises(SpecError, match="kl"):
        run_preview(PreviewRequest(path), never)


def test_an_unwritable_place_is_refused_before_anything_loads(tmp_path: Path) -> None:
    path = write(tmp_path, minimal())
    with pytest.raises(SpecError, match="--out"):
        run_preview(PreviewRequest(path, out=path / "below-a-file"), never)


def test_a_disk_that_fills_up_later_costs_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(request: PreviewRequest, loaded: LoadedSpec, study: Path | None) -> Drawn:
        Path("out").mkdir()
        Path("out/preview.json").mkdir()  # can't be replaced by a file
        return draw(request, loaded, study)

    with pytest.raises(RunError, match="can't be written"):
        run_preview(PreviewRequest(write(tmp_path, minimal()), out=Path("out")), fill)
    assert "Gold is highest" in capsys.readouterr().out
    assert os.environ["OMP_WAIT_POLICY"] == "passive"


def test_write_never_narrows_the_side_on_which_nothing_was_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def few(request: PreviewRequest, loaded: LoadedSpec, study: Path | None) -> Drawn:
        return Drawn(scored(same, samples=16), subject(48, 16))

    path = write(tmp_path, adaptive())
    before = load_spec(path).spec.search
    run_preview(PreviewRequest(path, write=True), few)
    after = load_spec(path).spec.search
    assert before.beta.log is not None
    assert after.beta.log is not None
    assert before.target_kl is not None
    assert after.target_kl is not None
    assert before.target_kl.log is not None
    assert after.target_kl.log is not None
    assert after.beta.log[0] == before.beta.log[0]
    assert after.target_kl.log[1] == before.target_kl.log[1]
    assert after.target_kl.log[0] >= before.target_kl.log[0]
    assert "kept from the spec: the sample ends before gold turns" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, ExitCode.TERMINATED), (signal.SIGINT, ExitCode.INTERRUPTED)],
)
@pytest.mark.parametrize("is_swallowed", [False, True])
def test_a_signal_ends_it_with_one_line_and_nothing_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: ExitCode,
    is_swallowed: bool,
) -> None:
    def hit(request: PreviewRequest, loaded: LoadedSpec, study: Path | None) -> Drawn:
        # A scorer of the user's may catch everything.
        with contextlib.suppress(*([KeyboardInterrupt] if is_swallowed else [])):
            os.kill(os.getpid(), number)
            time.sleep(5)
        return draw(request, loaded, study)

    # Where the command does not listen, the test fails rather than ends.
    before = signal.signal(number, lambda *_: None)
    try:
        assert run_preview(PreviewRequest(write(tmp_path, minimal())), hit) is code
        assert signal.getsignal(number) is not signal.SIG_DFL
    finally:
        signal.signal(number, before)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].endswith("stopped; nothing was written")
    assert len(captured.err.splitlines()) == 1
    assert not Path("studies").exists()


def test_a_signal_while_results_are_written_waits_for_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Writing(has_begun=True).hear("terminated")
    assert "the results are being written" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        Writing().hear("terminated")
