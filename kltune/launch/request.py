"""What a person asked ``kltune sweep`` for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kltune.spec.load import LoadedSpec, load_spec


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The flags of ``kltune sweep``."""

    spec_path: Path
    study_path: Path | None = None
    trials: int | None = None
    slots: int | None = None
    workers: int | None = None
    overrides: tuple[str, ...] = ()
    fresh: bool = False
    dry_run: bool = False
    seed: int | None = None
    as_json: bool = False
    command: tuple[str, ...] | None = None
    """Words that start the same study again; None: those that started this process."""

    def load(self) -> LoadedSpec:
        """The spec with the flags on top of ``--set`` on top of the file."""
        flags = {
            "budget.trials": self.trials,
            "budget.slots": self.slots,
            "budget.workers": self.workers,
            "seed": self.seed,
        }
        given = tuple(f"{key}={value}" for key, value in flags.items() if value is not None)
        return load_spec(self.spec_path, (*self.overrides, *given))

    def folder(self, spec: LoadedSpec) -> Path:
        """Where the study lives."""
        return self.study_path or Path("studies") / spec.spec.name
