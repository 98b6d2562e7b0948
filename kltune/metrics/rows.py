"""The rows of a trial's files: what the files are called, and how attempts merge into one curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any

from kltune.metrics.gold_names import gold_metric
from kltune.metrics.record import OtherGold

CONFIG = "config.json"
STEPS = "metrics.jsonl"
EVALS = "evals.jsonl"
SAMPLES = "samples.jsonl"
EVENTS = "events.jsonl"
TOKENS = "tokens.jsonl"
"""Where in the completions the KL lies: one row a step."""
OUTLIERS = "outliers.jsonl"
"""The tokens with the largest KL: a few rows an evaluation."""

Row = dict[str, Any]


def merge_attempts(rows: Iterable[Row], events: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Keep one row a step, in step order: the latest attempt's, where it still counts.

    A row is overtaken where a later attempt went on from an earlier step: it belongs to
    weights that no longer exist. ``events`` are all events of the trial.
    """
    starts = _starts(events)
    by_step: dict[int, Row] = {}
    for row in rows:
        step, attempt = int(row["step"]), int(row["attempt"])
        is_overtaken = any(later > attempt and step > start for later, start in starts)
        held = by_step.get(step)
        if not is_overtaken and (held is None or held["attempt"] <= attempt):
            by_step[step] = row
    return [by_step[step] for step in sorted(by_step)]


def standing_warnings(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The ``warning`` events that still hold, in step order, the first of each guard.

    A warning is overtaken where a later attempt went on from an earlier step, as a row is.
    """
    starts = _starts(events)
    found: dict[str, Mapping[str, Any]] = {}
    warned = [event for event in events if event.get("event") == "warning"]
    for event in sorted(warned, key=lambda event: int(event["step"])):
        step, attempt = int(event["step"]), int(event["attempt"])
        if not any(later > attempt and step > start for later, start in starts):
            found.setdefault(str(event["guard"]), event)
    return list(found.values())


def _starts(events: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """(attempt, step that it went on from)."""
    return [
        (int(event["attempt"]), int(event["step"]))
        for event in events
        if event.get("event") in ("started", "resumed")
    ]


def last_ending(events: Sequence[Mapping[str, Any]], attempt: int) -> Mapping[str, Any] | None:
    """Find how ``attempt`` ended; none while it runs, or where its process died."""
    ended = [event for event in events if event.get("event") == "ended"]
    # An attempt that was taken over may say its end late, behind that of the one after it.
    ended = [event for event in ended if int(event["attempt"]) >= attempt]
    return ended[-1] if ended else None


def other_golds(row: Mapping[str, Any]) -> dict[str, OtherGold]:
    """The golds beside the objective's in a row of evals.jsonl, by name; a study without any has none.

    A number recorded as null (not finite) becomes NaN.
    """
    found: Mapping[str, Sequence[object]] = row.get("golds_by_prompt") or {}
    return {
        name: OtherGold(
            mean=_number(row.get(gold_metric(name))),
            se=_number(row.get(f"{gold_metric(name)}_se")),
            by_prompt=tuple(_number(score) for score in scores),
        )
        for name, scores in found.items()
    }


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else nan
