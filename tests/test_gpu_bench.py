"""The GPU benchmark runs on a CPU, with a tiny model, and counts as its table says."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kltune.trainer.flops import ModelSize
from tests.bench.gpu_checks import Verdict
from tests.bench.gpu_contenders import Step
from tests.bench.gpu_limits import adapter_parameters, model_size, position_bytes
from tests.bench.gpu_model import TINY, Distinct, Job, load, make_bank, make_prompts
from tests.bench.gpu_runner import Runner
from tests.bench.gpu_table import decode, ratios, summary, table

COMMAND = Path(__file__).parent / "bench" / "gpu.sh"
JOB = Job(TINY, "cpu", "float32", completions=16, tokens=6, prompt_tokens=5)


def row(seconds: float) -> dict[str, float]:
    return summary(
        [{"rollout_s": seconds, "reference_s": seconds, "update_s": seconds, "step_s": 3 * seconds}]
    )


def run(tmp_path: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    out = ["--device", "cpu", "--tiny", "--out", str(tmp_path / "found.json"), *flags]
    return subprocess.run(
        ["bash", str(COMMAND), *out],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", **environment},
    )


@pytest.mark.slow
def test_it_runs_and_its_checks_hold(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [check["name"] for check in found["checks"] if not check["holds"]] == []
    assert len(found["checks"]) == 5
    assert (found["imported"], found["faults"]) == ([], {})
    assert list(found["rows"]) == ["kltune K=1", "kltune K=2", "HF generate loop"]
    for values in found["rows"].values():
        phases = values["rollout_s"] + values["reference_s"] + values["update_s"]
        assert 0 < phases <= values["step_s"]
        # The same work for each: 16 completions of 6 tokens.
        assert values["facts"]["tokens"] == 96
    assert set(found["ratios"]) == {
        "kltune K=2 vs K=1",
        "kltune K=1 vs HF loop",
        "kltune K=2 vs HF loop",
    }
    assert all(line in done.stdout for line in ("PASS", "| kltune K=2 |", "neither Optuna"))


def test_a_package_that_is_missing_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    (tmp_path / "python").chmod(0o755)
    done = run(tmp_path, PYTHON=str(tmp_path / "python"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "pydantic" in line
    assert "torch" in line


class Fake:
    slots = 1

    def __init__(self, name: str, order: list[str], faulty_at: int = -1) -> None:
        self.name, self.order, self.faulty_at, self.count = name, order, faulty_at, 0

    def warm(self) -> None: ...

    def step(self) -> Step:
        self.order.append(self.name)
        self.count += 1
        if self.count == self.faulty_at:
            raise RuntimeError("out of memory")
        return Step(1.0, 1.0, 1.0, 3.0)


def runner(tmp_path: Path, budget: float) -> Runner:
    out = tmp_path / "found.json"
    return Runner(argparse.Namespace(budget=budget, out=out, traceback=False), JOB)


def test_contenders_take_turns_and_a_faulty_one_stops_alone(tmp_path: Path) -> None:
    order: list[str] = []
    ran, fakes = runner(tmp_path, 60.0), [Fake("a", order, faulty_at=2), Fake("b", order)]
    built = [c for c in (ran.build(f.name, lambda f=f: f) for f in fakes) if c is not None]
    ran.rounds(built, {"a": 3, "b": 3})
    assert order == ["a", "b", "a", "b", "b"]
    assert ran.facts["faults"] == {"a": "RuntimeError: out of memory"}
    assert [row["rounds"] for row in ran.rows().values()] == [1, 3]
    assert (tmp_path / "found.json").is_file()


def test_nothing_is_started_that_would_outlast_the_budget(tmp_path: Path) -> None:
    order: list[str] = []
    ran, fake = runner(tmp_path, 0.0), Fake("a", order)
    ran.build("a", lambda: fake)
    ran.rounds([fake], {"a": 3})
    assert order == []
    assert table(ran.rows()).count("\n") == 2


def test_ratios_are_of_the_seconds_of_a_trial_step() -> None:
    rows = {"kltune K=1": row(2.0), "kltune K=8": row(1.0), "HF generate loop": row(8.0)}
    found = ratios(rows)
    assert found["kltune K=8 vs K=1"] == dict.fromkeys(
        ("rollout", "reference", "update", "step"), 2.0
    )
    assert found["kltune K=8 vs HF loop"]["step"] == 8.0
    assert "| kltune K=8 vs HF loop | 8.00 | 8.00 | 8.00 | 8.00 |" in table(rows)


def test_tokens_per_second_are_of_all_slots_and_a_position_is_of_all_rows() -> None:
    # 8 slots share 16 s: 2 s a trial of 64 x 256 tokens.
    assert decode({"rollout_s": 2.0}, slots=8, completions=64, tokens=256) == {
        "decode_tokens_per_s": 8192.0,
        "position_ms": 62.5,
    }


def test_the_counted_weights_are_the_models() -> None:
    loaded = load(JOB)
    config = loaded.model.config
    assert model_size(TINY) == ModelSize.of(loaded.body, loaded.head, config)
    bank = make_bank(loaded, JOB, 1, make_prompts(JOB, 4), Distinct())
    assert adapter_parameters(TINY) == bank.parts.stack.num_parameters


def test_slots_share_the_reading_of_weights_alone() -> None:
    one, two, three = (position_bytes(JOB, slots) for slots in (1, 2, 3))
    assert two - one == pytest.approx(three - two)
    size = model_size(TINY)
    assert one - (two - one) == pytest.approx(4 * (size.body + size.head))


def test_a_verdict_says_what_it_saw() -> None:
    assert Verdict("a", False, "b 3").line == "FAIL  a: b 3"
