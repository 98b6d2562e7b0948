"""What one measured process is told: plain numbers and paths, no torch. JSON in, JSON out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tests.bench.work import Work

Precision = Literal["fp32", "bf16"]

TINY = Work(completions=8, tokens=4)


@dataclass(frozen=True, slots=True)
class Job:
    """One process of one contender."""

    trainer: Literal["kltune", "trl", "peak"]
    threads: int
    model: str = "tiny"
    folder: str = ""
    work: Work = TINY
    slots: int = 1
    """Trials that train in this process."""
    first_trial: int = 0
    """Number and seed of its first trial."""
    precision: Precision = "fp32"
    dtype: Literal["float32", "bfloat16"] = "float32"
    checkpointing: bool = False

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """What :meth:`to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        work = Work(**fields.pop("work"))
        return cls(work=work, **fields)
