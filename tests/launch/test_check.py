from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spec_files import minimal, write

from kltune.check.result import Line
from kltune.errors import ExitCode, SpecError
from kltune.grade import Grade
from kltune.launch.check import CheckRequest, Looked, run_check
from kltune.spec.load import LoadedSpec


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")


def lines(*grades: Grade) -> tuple[Line, ...]:
    return tuple(Line("pad", "a title", g, "found.", "do this.", {"pad_id": 1.0}) for g in grades)


@pytest.mark.parametrize(
    ("grades", "code"),
    [
        ((Grade.PASS,), ExitCode.DONE),
        ((Grade.PASS, Grade.WARN), ExitCode.DONE),
        ((Grade.WARN, Grade.FAIL), ExitCode.GATE_FAILED),
    ],
)
def test_only_a_failure_is_an_exit_code(
    tmp_path: Path, grades: tuple[Grade, ...], code: ExitCode
) -> None:
    request = CheckRequest(write(tmp_path, minimal()))
    assert run_check(request, lambda spec, samples: Looked(lines(*grades))) is code
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"], "nothing is written"


def test_flags_reach_the_probes(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []

    def look(spec: LoadedSpec, samples: int | None) -> Looked:
        seen.append((spec.spec.seed, samples))
        return Looked(lines(Grade.PASS))

    run_check(CheckRequest(write(tmp_path, minimal()), 48, ("seed=3",)), look)
    assert seen == [(3, 48)]


def test_json_is_all_that_stdout_gets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def look(spec: LoadedSpec, samples: int | None) -> Looked:
        os.write(1, b"a library that prints\n")
        return Looked(lines(Grade.FAIL), ("the proxy",))

    run_check(CheckRequest(write(tmp_path, minimal()), as_json=True), look)
    row = json.loads(capfd.readouterr().out)
    assert (row["name"], row["grade"], row["skipped"]) == ("small", "fail", ["the proxy"])
    assert row["lines"][0]["remedy"] == "do this."


def test_the_table_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_check(
        CheckRequest(write(tmp_path, minimal())), lambda spec, samples: Looked(lines(Grade.FAIL))
    )
    shown = capsys.readouterr().out
    assert "not sound" in shown
    assert "do this." in shown


def test_a_bad_spec_is_refused_before_anything_heavy_loads(tmp_path: Path) -> None:
    def never(spec: LoadedSpec, samples: int | None) -> Looked:
        raise AssertionError("nothing may be loaded")

    with pytest.raises(SpecError, match="no built-in model"):
        run_check(CheckRequest(write(tmp_path, minimal()), None, ("model.base=builtin:no",)), never)


def test_a_bad_spec_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom kltune.errors import SpecError\n"
        "from kltune.launch.check import CheckRequest, run_check\n"
        f"try:\n    run_check(CheckRequest(Path({str(tmp_path / 'no.yaml')!r})))\n"
        "except SpecError:\n    print(*{n.split('.')[0] for n in sys.modules})\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kltune" in ran.stdout.split()
    assert set(ran.stdout.split()) & {"torch", "transformers", "optuna", "mlflow"} == set()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_a_signal_ends_it_at_once(
    tmp_path: Path, number: signal.Signals, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    def look(spec: LoadedSpec, samples: int | None) -> Looked:
        os.kill(os.getpid(), number)
        time.sleep(5)
        raise AssertionError("the signal was not heard")

    assert run_check(CheckRequest(write(tmp_path, minimal())), look) is code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "stopped" in captured.err
