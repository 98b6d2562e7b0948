"""Two env.json in, what differs between the record's machine and this one out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_PACKAGES = ("torch", "transformers", "numpy")
"""Whose versions can move the last bits."""


def changed_surroundings(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """In words, each ``what: recorded, now``; what the record does not say is left out."""
    return tuple(_changes(recorded, now))


def _changes(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in ("kltune", "python", "platform", "cpus"):
        yield from _change(name, recorded.get(name), now.get(name))
    mine, theirs = _section(recorded, "packages"), _section(now, "packages")
    for name in _PACKAGES:
        yield from _change(name, mine.get(name), theirs.get(name))
    mine, theirs = _section(recorded, "device"), _section(now, "device")
    # Threads are those of the main process there, which may have left the training to others.
    for name in sorted((mine.keys() & theirs.keys()) - {"threads"}):
        yield from _change(
            "device" if name == "device" else f"device {name}", mine[name], theirs[name]
        )
    mine, theirs = _section(recorded, "git"), _section(now, "git")
    yield from _change("git commit", _short(mine.get("commit")), _short(theirs.get("commit")))
    if mine.get("dirty") or theirs.get("dirty"):
        yield "git: files differed from the commit, then or now"


def _change(name: str, recorded: object, now: object) -> Iterator[str]:
    if recorded is not None and now is not None and recorded != now:
        yield f"{name}: {recorded} in the record, {now} now"


def _section(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _short(commit: object) -> str | None:
    return commit[:10] if isinstance(commit, str) else None
