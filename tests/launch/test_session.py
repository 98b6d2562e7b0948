"""A sweep holds its study from the start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SPEC = """
name: race
task: kitchen
model: {base: builtin:kitchen}
trainer: {steps: 4, prompts: 2, group_size: 4, max_new_tokens: 16, learning_rate: 0.001}
search: {beta: {log: [1.0e-5, 1], zero: true}, penalty: {choice: [k2-loss]}}
evaluate: {every: 2, prompts: 8, samples: 1}
budget: {trials: 2, workers: 1, slots: 1}
tracking: {enabled: false}
"""


def test_of_two_sweeps_that_start_at_once_one_trains_and_the_other_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    command = [sys.executable, "-m", "kltune", "sweep", "spec.yaml", "--study", "new/s"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=240)[1] for process in both]
    codes = [process.returncode for process in both]
    assert 2 in codes, said
    refused = codes.index(2)
    assert "another kltune is working in new/s (process" in said[refused]
    assert "trial" not in said[refused].replace("2 trials", "").replace("trials:", "")
    assert "trial 0" in said[1 - refused]
    events = list((tmp_path / "new" / "s" / "trials").glob("*/events.jsonl"))
    assert len(events) == 2
    for path in events:
        assert path.read_text(encoding="utf-8").count('"started"') == 1


def test_a_sweep_that_can_not_start_leaves_no_folder(tmp_path: Path) -> None:
    text = SPEC.replace("learning_rate: 0.001", "learning_rate: 0.001, device: cuda:99")
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "kltune", "sweep", "spec.yaml", "--study", "new/s"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode == 5, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]
