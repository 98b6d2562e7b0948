"""Runs for the tests of ``kltune diagnose``: fabricated logs, and those that TRL wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kltune.diagnose.read import read_run
from kltune.diagnose.runlog import Reading, RunLog
from kltune.symptoms.curve import Curve, Quantity

LOGS = Path(__file__).parent / "diagnose" / "logs"

_UNITS = {
    Quantity.KL_TOKEN: "nats/token",
    Quantity.K1_TOKEN: "nats/token",
    Quantity.TARGET: "nats/token",
    Quantity.KL_SEQ: "nats/sequence",
}


def run_log(
    values: Mapping[Quantity, Sequence[float]],
    *,
    steps: Sequence[int] | None = None,
    framework: str = "unknown",
    facts: Mapping[str, float | str] | None = None,
    estimators: Mapping[Quantity, str] | None = None,
    units: Mapping[Quantity, str] | None = None,
    path: str = "log.jsonl",
) -> RunLog:
    """A run with these values, at steps 1, 2, ... unless told otherwise."""
    count = max((len(one) for one in values.values()), default=0)
    units, estimators = {**_UNITS, **(units or {})}, estimators or {}
    readings = {
        q: Reading(q, f"log/{q.value}", units.get(q, ""), estimators.get(q, ""), "fabricated")
        for q in values
    }
    curve = Curve(
        tuple(steps or range(1, count + 1)), {q: tuple(map(float, v)) for q, v in values.items()}
    )
    return RunLog(path, framework, "a fabricated log", curve, readings, facts or {})


def trl_log(name: str) -> RunLog:
    """One of the recorded logs of TRL (tests/bench/trl_logs.py made them) by its name."""
    (run,) = read_run(str(LOGS / f"{name}.json"))
    return run


def ramp(first: float, last: float, count: int = 40, noise: float = 0.0) -> list[float]:
    """A straight line, with noise that comes back every seven steps."""
    wiggle = (0.3, -1.0, 0.7, 0.1, -0.6, 1.0, -0.5)
    rise = (last - first) / (count - 1)
    return [first + rise * i + noise * wiggle[i % 7] for i in range(count)]
