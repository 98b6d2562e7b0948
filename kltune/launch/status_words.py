"""Members of a study in; out: how many there are of which kind, in words."""

from __future__ import annotations

from collections.abc import Sequence

from kltune.study.crew import Member


def members_words(found: Sequence[Member]) -> str:
    """``sweep + 3 workers``, ``2 workers`` or ``sweep``; empty where nobody is."""
    count = sum(member.role == "worker" for member in found)
    parts = ["sweep"] if any(member.role == "sweep" for member in found) else []
    if count:
        parts.append(f"{count} worker{'s' * (count > 1)}")
    return " + ".join(parts)


def dead_words(found: Sequence[Member]) -> str:
    """Those whose process is gone without a word: who they were."""
    return ", ".join(f"{m.role} {m.id} (process {m.pid})" for m in found)


def members_json(found: Sequence[Member]) -> list[dict[str, object]]:
    """The members as data; a machine is told apart by nothing that names it."""
    return [
        {
            "id": member.id,
            "role": member.role,
            "process": member.pid,
            "is_alive": member.is_alive,
            "is_here": member.is_here,
            "slots": member.slots,
            "device": member.device,
            "started": member.started,
        }
        for member in found
    ]
