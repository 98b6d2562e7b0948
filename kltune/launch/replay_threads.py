"""A replay's plan in, the number of threads to compute with out: the record's own, where this machine has them."""

from __future__ import annotations

import os
from pathlib import Path

from kltune.launch.kept_placement import FILE as PLACEMENT
from kltune.launch.kept_placement import kept_choices
from kltune.launch.replay import ReplayPlan
from kltune.launch.threads import allowed_threads
from kltune.metrics.jsonl import read_json


def replay_threads(plan: ReplayPlan) -> tuple[int, list[str]]:
    """Threads, and what must be said about them: sums are rounded by how they are cut into threads."""
    study, allowed = plan.request.study_path, allowed_threads()
    notes: list[str] = []
    if (study / PLACEMENT).is_file():
        kept, *others = kept_choices(study)
        if others:
            notes.append(
                f"the study was run with {1 + len(others)} numbers of threads, processes and trials at once "
                f"({PLACEMENT}); the latest is taken, and the last bits may differ"
            )
        threads, workers, slots = (int(kept[name]) for name in ("threads", "workers", "slots"))
        if kept.get("device") == "cuda" or slots > workers:
            notes.append(
                f"the study ran {slots} trials at once in {workers} process{'es' * (workers > 1)}, this is one "
                "alone: where they shared a batch, the last bits may differ"
            )
    else:
        threads = _main_threads(study)
        if threads is None:
            return allowed, [
                f"with how many threads the record was computed is not known ({PLACEMENT} is absent); {allowed} now"
            ]
    # More threads than OMP_NUM_THREADS says can be asked for, more than there are cores can't be had.
    cores = len(os.sched_getaffinity(0))
    if threads <= max(cores, allowed):
        return threads, notes
    notes.append(f"the record was computed with {threads} threads, this machine has {cores} cores")
    return allowed, notes


def _main_threads(study: Path) -> int | None:
    """Threads of the study's main process: before there were workers, it trained."""
    path = study / "env.json"
    device = read_json(path).get("device") if path.is_file() else None
    told = device.get("threads") if isinstance(device, dict) else None
    return int(told) if isinstance(told, str | int) and str(told).isdigit() else None
