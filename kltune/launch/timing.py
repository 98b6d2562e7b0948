"""How long a session took and where the time went, added up over the sessions of a study in timing.json."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from kltune.launch.placement import Calibration
from kltune.metrics.jsonl import read_json, write_json
from kltune.study.lock import briefly_alone
from kltune.study.search_end import SearchEnd

FILE = "timing.json"


def note_session(
    study_path: Path,
    end: SearchEnd,
    mirror_busy_s: float,
    calibration: Calibration | None = None,
) -> dict[str, Any]:
    """Add a session; return the totals.

    ``bookkeeping_frac`` = time outside the bank (Optuna, files, screen, waiting for a stop) plus the
    CPU seconds of the MLflow thread, which takes them from the trainer on a full machine, over wall time.
    ``waiting_s`` (a member with nothing to run, while others ran theirs) is in neither of the two.
    ``worker_s`` = wall time x workers: what the workers could have been busy for.

    Placement and calibration are those of the latest session that had one; what it did not measure
    (``alone_step_s``, ``placed_step_s``: seconds per trial-step; ``peak_gflops``) is null, not an older value.
    """
    with briefly_alone(study_path):
        return _note(study_path / FILE, end, mirror_busy_s, calibration)


def _note(
    path: Path, end: SearchEnd, mirror_busy_s: float, calibration: Calibration | None
) -> dict[str, Any]:
    before = read_json(path) if path.is_file() else {}
    workers = 1 if calibration is None else calibration.placement.workers
    # A file without worker_s is from when every session was one process.
    worker_s = before.get("worker_s", before.get("wall_s", 0.0))
    totals = {
        "sessions": before.get("sessions", 0) + 1,
        "wall_s": before.get("wall_s", 0.0) + end.wall_s,
        "trainer_s": before.get("trainer_s", 0.0) + end.trainer_s,
        "waiting_s": before.get("waiting_s", 0.0) + end.waiting_s,
        "mirror_cpu_s": before.get("mirror_cpu_s", 0.0) + mirror_busy_s,
        "worker_s": worker_s + end.wall_s * workers,
    }
    at_work = totals["wall_s"] - totals["waiting_s"]
    outside = at_work - totals["trainer_s"] + totals["mirror_cpu_s"]
    totals["bookkeeping_frac"] = min(1.0, outside / max(at_work, 1e-9))
    totals |= _placed(before) if calibration is None else _placed(asdict(calibration))
    write_json(path, {"schema": 1, **totals})
    return totals


def _placed(found: dict[str, Any]) -> dict[str, Any]:
    names = ("placement", "alone_step_s", "placed_step_s", "peak_gflops")
    return {name: found.get(name) for name in names if name in found}
