"""What was chosen for a machine in; out, in a later session or on another machine of that kind: the same again.

``placement.json`` holds the latest choice, and those for other kinds of machines and wishes: workers of one
study may run on several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kltune.launch.placement import Calibration, Placement
from kltune.metrics.jsonl import read_json, write_json
from kltune.study.lock import briefly_alone

FILE: Final = "placement.json"
"""In the study folder: a resumed study keeps it, so that its trials repeat."""
MOST_KEPT: Final = 16
"""Kinds of machines and wishes whose choice is kept."""


def keep_choice(study_path: Path, calibration: Calibration, facts: Mapping[str, Any]) -> None:
    """Note what was chosen for ``facts``: device, cores, what was asked for and considered."""
    numbers = asdict(calibration)
    chosen = {**numbers.pop("placement"), **numbers, **facts}
    study_path.mkdir(parents=True, exist_ok=True)
    with briefly_alone(study_path):
        earlier = [one for one in kept_choices(study_path) if not _is_same_wish(one, facts)]
        others = {"others": earlier[: MOST_KEPT - 1]} if earlier else {}
        write_json(study_path / FILE, {"schema": 1, **chosen, **others})


def kept_choices(study_path: Path | None) -> list[dict[str, Any]]:
    """What was chosen in the study so far, the latest first."""
    path = None if study_path is None else study_path / FILE
    if path is None or not path.is_file():
        return []
    first = read_json(path)
    return [first, *first.pop("others", [])]


def placement_of(kept: Mapping[str, Any]) -> Placement:
    """The placement of a choice."""
    return Placement(*(int(kept[name]) for name in ("workers", "slots", "threads")))


def still_holds(kept: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether a choice is right for these facts; more cores than before are no reason, since resumed trials shall repeat."""
    if any(kept.get(name) != facts[name] for name in ("device", "asked")):
        return False
    before, now = kept["considered"], facts["considered"]
    if kept["cores"] == facts["cores"]:
        return before == now
    return kept["cores"] < facts["cores"] and before["slots"] <= now["slots"]


def _is_same_wish(kept: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether a new choice takes the place of this one."""
    return all(kept.get(name) == facts[name] for name in ("device", "cores", "asked"))
