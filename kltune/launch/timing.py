"""How long a session took and where the time went, added up over the sessions of a study in timing.json."""

from __future__ import annotations

from pathlib import Path

from kltune.metrics.jsonl import read_json, write_json
from kltune.study.loop import SearchEnd

FILE = "timing.json"


def note_session(study_path: Path, end: SearchEnd, mirror_busy_s: float) -> dict[str, float]:
    """Add a session; return the totals.

    ``bookkeeping_frac`` = time outside the bank (Optuna, files, screen, waiting for a stop) plus the
    CPU seconds of the MLflow thread, which takes them from the trainer on a full machine, over wall time.
    """
    path = study_path / FILE
    before = read_json(path) if path.is_file() else {}
    totals = {
        "sessions": before.get("sessions", 0) + 1,
        "wall_s": before.get("wall_s", 0.0) + end.wall_s,
        "trainer_s": before.get("trainer_s", 0.0) + end.trainer_s,
        "mirror_cpu_s": before.get("mirror_cpu_s", 0.0) + mirror_busy_s,
    }
    outside = totals["wall_s"] - totals["trainer_s"] + totals["mirror_cpu_s"]
    totals["bookkeeping_frac"] = min(1.0, outside / max(totals["wall_s"], 1e-9))
    write_json(path, {"schema": 1, **totals})
    return totals
