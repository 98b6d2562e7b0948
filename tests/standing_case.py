"""Steps and seconds in, small study folders for `kltune status` and `ls` out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kltune.metrics.jsonl import append_rows, write_json
from kltune.spec.load import resolved
from kltune.spec.study import StudySpec
from tests.fake_study import SPEC

NOW = 1_800_000_000.0
"""Unix seconds at which the studies are looked at."""


def spec_of(**budget: Any) -> StudySpec:
    return StudySpec.model_validate({**SPEC, "budget": {"trials": 4, **budget}, "baselines": []})


def write_study(folder: Path, **budget: Any) -> Path:
    """A study without trials."""
    write_json(folder / "resolved.json", resolved(spec_of(**budget)))
    (folder / "spec.yaml").write_text("name: kitchen\n", encoding="utf-8")
    return folder


def write_trial(
    study: Path,
    number: int,
    *,
    step: int = 80,
    ending: Mapping[str, Any] | None = None,
    started: float = NOW - 100,
    last: float = NOW - 10,
    gold: float = 0.5,
    origin: str = "sobol",
) -> Path:
    """One trial that got to ``step``; open unless ``ending`` says how it ended."""
    folder = study / "trials" / f"{number:05d}"
    head = {"trial": number, "attempt": 1}
    setting = {"beta": 0.1, "penalty": "k2-loss", "learning_rate": 1e-3}
    config = {"origin": origin, "setting": setting, "sigma_r": 0.6, "kl_unit": "token"}
    write_json(folder / "config.json", {**head, **config, "beta_unit": "reward"})
    append_rows(folder / "events.jsonl", [{**head, "step": 0, "time": started, "event": "started"}])
    measured = {"kl/exact_token": 0.2, "kl/exact_seq": 2.4}
    append_rows(folder / "metrics.jsonl", [{**head, "step": step, "time": last, **measured}])
    judged = {"eval/gold": gold, "eval/gold_se": 0.07, "eval/kl_token": 0.2, "eval/kl_seq": 2.4}
    append_rows(folder / "evals.jsonl", [{**head, "step": step, "time": last, **judged}])
    if ending is not None:
        end = {"event": "ended", "reason": "done", "detail": "", "state": "complete"}
        facts = {"steps_run": step, "value": gold, "feasible": True, "constraint": -1.0}
        row = {**head, "step": step, "time": last, **end, **facts, "best_step": step, **ending}
        append_rows(folder / "events.jsonl", [row])
    return folder


HOLD = """
import sys, time
from pathlib import Path
from kltune.study.lock import lock_study
with lock_study(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another_process(study: Path) -> Generator[int]:
    """A real process that holds the study as a sweep does; gives its id."""
    command = [sys.executable, "-c", HOLD, str(study)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process.pid
        finally:
            process.communicate()
