"""Every look at the test prompts, in a ledger of the study: appended before anything of it is shown.

Prompts that are looked at again and again, each time with another setting in mind, are no test any
more. Nothing stops a person from it; but how often it happened is said beside every result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kltune.metrics.jsonl import append_rows, read_rows

FILE = "looks.jsonl"


@dataclass(frozen=True, slots=True)
class Look:
    """One command that showed numbers of test prompts."""

    command: tuple[str, ...]
    """As it was typed."""
    what: str
    """The settings that were looked at, in a few words each."""
    seeds: Sequence[int]
    digest: str
    """SHA-256 of the prompts."""
    completions: int
    """Judged in all, those of earlier looks included."""
    new_completions: int
    """Of them, drawn for this look."""


def note_look(study_path: Path, look: Look, now: datetime | None = None) -> int:
    """Append a look; return how many there have been, this one included."""
    row = {
        "time": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "command": list(look.command),
        "what": look.what,
        "seeds": list(look.seeds),
        "digest": look.digest,
        "completions": look.completions,
        "new_completions": look.new_completions,
    }
    append_rows(study_path / FILE, [row])
    return len(read_looks(study_path))


def other_designs(study_path: Path, look: Look) -> int:
    """Looks on record at the same prompts with other settings, stops or seeds than this one's."""
    own = (look.what, list(look.seeds))
    rows = [row for row in read_looks(study_path) if row.get("digest") == look.digest]
    return sum((row.get("what"), row.get("seeds")) != own for row in rows)


def read_looks(study_path: Path) -> list[dict[str, Any]]:
    """All looks so far, oldest first."""
    return read_rows(study_path / FILE)


def looks_words(study_path: Path) -> str:
    """How often the test prompts have been looked at, for people."""
    looks = read_looks(study_path)
    if not looks:
        return "The test prompts have not been looked at."
    new = sum(1 for look in looks if look["new_completions"] > 0)
    detail = "" if new == len(looks) else f", {new} of them with new completions"
    return f"The test prompts have been looked at {times(len(looks))}{detail}; first at {looks[0]['time']}."


def times(count: int) -> str:
    """How often, for people; every text about looks says it by this."""
    return "once" if count == 1 else f"{count} times"


def repeated_words(others: int) -> str:
    """What looking again with another design does to the intervals; ``others``: such looks before."""
    return (
        f"the test prompts had been looked at {times(others)} before with another design (other settings, stops or seeds): "
        "the 95 % intervals hold for one look that was settled beforehand; looking again and again, with more seeds "
        "each time, until it says 'stays' makes them too narrow"
    )
