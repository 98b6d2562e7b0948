"""Settings x seeds in, their whole curves as tables out: a designed experiment beside the search."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import pandas as pd

from kltune.api.study import as_path
from kltune.api.sweep import Overrides, override_words, spec_file
from kltune.errors import ExitCode, SpecError, StudyError
from kltune.launch.arms import Arm, Experiment, run_experiment
from kltune.launch.arms_record import FILE, ORIGIN, is_recorded, read_runs
from kltune.launch.signals import EXIT_CODES
from kltune.metrics.jsonl import read_json
from kltune.metrics.names import METRICS
from kltune.metrics.rows import Row
from kltune.spec.load import load_spec
from kltune.trial.record import TrialRecord

_WHOSE: Final = ("arm", "seed", "step")
_HIDDEN: Final = (
    *("schema", "non_finite", "trial", "attempt", "time"),
    *("gold_by_prompt", "proxy_by_prompt", "golds_by_prompt"),
)


@dataclass(frozen=True)
class Arms:
    """The runs of a folder that have ended."""

    path: Path
    facts: Mapping[str, Any]
    """arms.json: spec, arms in the spec's units, seeds, ``scale`` (sigma_R), versions, ``wall_s``, ``units``."""
    runs: tuple[TrialRecord, ...]

    @cached_property
    def evals(self) -> pd.DataFrame:
        """One row an evaluation on the select prompts: ``arm``, ``seed``, ``step`` and every metric by its name.

        Units are in ``attrs["units"]``.
        """
        return _table(self.runs, [record.evals for record in self.runs])

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a training step, likewise."""
        return _table(self.runs, [record.steps for record in self.runs])

    @cached_property
    def ends(self) -> pd.DataFrame:
        """One row a run: ``arm``, ``seed``, ``reason``, ``detail``, ``steps`` run."""
        rows = [
            {
                **_whose(record),
                "reason": record.outcome.verdict.reason.value,
                "detail": record.outcome.verdict.detail,
                "steps": record.outcome.steps_run,
            }
            for record in self.runs
            if record.outcome is not None
        ]
        return pd.DataFrame(rows, columns=["arm", "seed", "reason", "detail", "steps"])


def run_arms(
    spec: str | Path | Mapping[str, object],
    *,
    arms: Mapping[str, Arm],
    seeds: Iterable[int],
    out: str | Path,
    set: Overrides = (),
) -> Arms:
    """Train every setting on every seed, each to its end, and evaluate all along.

    Nothing is searched, pruned or guarded, so that arms have the same budget; runs of one seed share
    prompts and random numbers. The same call again does what is missing, and more seeds or arms may be
    added; a run that diverged is recorded and not run again. Model, task, trainer and ``control`` are those
    of ``spec``; its search, guards, baselines and wall budget are not used. Workers and slots are
    chosen as in ``kltune sweep``, so a script needs ``if __name__ == "__main__":``.

    Args:
        spec: a YAML file, or the same as a mapping.
        arms: by name: fields of a setting (``beta`` in the spec's ``beta_unit``, ``penalty``, ``controller``,
            ``target_kl`` in its ``kl_unit``, ``horizon`` in sequences, ``learning_rate``), or a recipe's name.
        seeds: of the runs; a proxy that is learned is learned once, from the spec's seed.
        out: folder of the record: ``arms.json`` and a trial's folder for each run.
        set: as in :func:`kltune.sweep`.

    Raises:
        SpecError: the spec, an arm or the seeds are wrong; nothing was started.
        StudyError: the folder holds runs of another spec or something else, or another process works in it.
        EnvironmentMissingError: this machine lacks what the spec needs.
        RunError: a run could not be trained.
        KeyboardInterrupt: interrupted; the same call goes on from there.
        SystemExit: 75, after SIGTERM; likewise.
    """
    folder, whole = as_path("out", out), _whole(seeds)
    with spec_file(spec) as path:
        loaded = load_spec(path, override_words(set))
        reason = run_experiment(Experiment(loaded, arms, whole, folder))
    if reason is not None:
        code = EXIT_CODES[reason]
        if code == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt("the running ones are saved: the same call goes on from there")
        raise SystemExit(int(code))
    return open_arms(folder)


def open_arms(path: str | Path) -> Arms:
    """Read the runs of a folder that `run_arms` wrote, as far as they are there.

    Raises:
        StudyError: it is none.
    """
    folder = as_path("path", path)
    facts = folder / FILE
    if not facts.is_file():
        raise StudyError(f"{folder}: holds no runs ({FILE} is absent)")
    runs = tuple(record for record in read_runs(folder) if is_recorded(record))
    return Arms(folder, read_json(facts), runs)


def _whole(seeds: object) -> tuple[int, ...]:
    """Seeds as whole numbers.

    Raises:
        SpecError: they are none.
    """
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise SpecError(f"seeds: must be whole numbers in a list or range (got {seeds!r})")
    found: list[int] = []
    for seed in cast("Iterable[Any]", seeds):
        try:
            if isinstance(seed, bool):
                raise TypeError
            found.append(operator.index(seed))
        except TypeError:
            raise SpecError(f"seeds: must be whole numbers (got {seed!r})") from None
    return tuple(found)


def _whose(record: TrialRecord) -> dict[str, Any]:
    return {"arm": record.origin.removeprefix(ORIGIN), "seed": record.setting.seed}


def _table(runs: Sequence[TrialRecord], rows: Sequence[Sequence[Row]]) -> pd.DataFrame:
    found = [
        {**_whose(record), **{k: v for k, v in row.items() if k not in _HIDDEN}}
        for record, own in zip(runs, rows, strict=True)
        for row in own
    ]
    table = pd.DataFrame(found) if found else pd.DataFrame(columns=list(_WHOSE))
    table.attrs["units"] = {c: METRICS[c].unit for c in table.columns if c in METRICS}
    return table
