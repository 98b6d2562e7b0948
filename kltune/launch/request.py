"""What a person asked ``kltune sweep`` and ``kltune worker`` for."""

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
    storage: str | None = None
    """Address of a database server; None: as the spec, the environment or the study says."""
    overrides: tuple[str, ...] = ()
    fresh: bool = False
    dry_run: bool = False
    seed: int | None = None
    as_json: bool = False
    command: tuple[str, ...] | None = None
    """Words that start the same study again; None: those that started this process."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that stand for a value of the spec, as ``--set`` would have them."""
        flags = {
            "budget.trials": self.trials,
            "budget.slots": self.slots,
            "budget.workers": self.workers,
            "seed": self.seed,
        }
        return tuple(f"{key}={value}" for key, value in flags.items() if value is not None)

    def load(self) -> LoadedSpec:
        """The spec with the flags on top of ``--set`` on top of the file."""
        return load_spec(self.spec_path, (*self.overrides, *self.flags))

    def folder(self, spec: LoadedSpec) -> Path:
        """Where the study lives."""
        return self.study_path or Path("studies") / spec.spec.name


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The flags of ``kltune worker``."""

    target: str
    """A study folder, a spec, or the address of a study in a database."""
    storage: str | None = None
    study_path: Path | None = None
    slots: int | None = None
    overrides: tuple[str, ...] = ()
    as_json: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """What is laid on top of a spec."""
        return self.overrides + (() if self.slots is None else (f"budget.slots={self.slots}",))
