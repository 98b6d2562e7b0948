"""``--require`` in; whether the result holds it, and by which numbers, out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kltune.confirm.result import Against, Gate, Judgement
from kltune.errors import SpecError

ALLOWED: Final = (
    "gold > baseline",
    "gold > start",
    "winner stays",
    "winner not beaten",
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One demand, in the words of `ALLOWED`."""

    text: str

    def gate(self, judged: Judgement) -> Gate:
        """Hold it against the intervals of the recommended setting on the test prompts."""
        match self.text:
            case "gold > start":
                return _above(
                    self.text, judged, [a for a in judged.against if a.role == "start"], "the start"
                )
            case "gold > baseline":
                rivals = [a for a in judged.against if a.role == "baseline"]
                return _above(self.text, judged, rivals, "every known recipe and beta = 0")
            case "winner stays":
                return Gate(
                    self.text, judged.verdict == "stays", f"the verdict is: {judged.verdict}"
                )
            case _:
                holds = judged.verdict != "changes"
                return Gate(self.text, holds, f"the verdict is: {judged.verdict}")


def parse_requirement(text: str) -> Requirement:
    """Read one demand; blanks don't matter.

    Raises:
        SpecError: something else than what is allowed, which is named.
    """
    tidy = re.sub(r"\s*>\s*", " > ", " ".join(text.lower().split()))
    if tidy not in ALLOWED:
        listed = ", ".join(repr(a) for a in ALLOWED)
        raise SpecError(f"--require: can't read {text!r}; allowed: {listed}")
    return Requirement(tidy)


def check_requirements(requirements: tuple[Requirement, ...], roles: set[str]) -> None:
    """Refuse a demand about what the design does not hold.

    Raises:
        SpecError: no baseline ran.
    """
    if any(r.text == "gold > baseline" for r in requirements) and "baseline" not in roles:
        raise SpecError(
            "--require: 'gold > baseline' has nothing to compare with: no baseline of this study has a result "
            "(spec: baselines, search.beta.zero)"
        )


def _above(text: str, judged: Judgement, rivals: list[Against], whom: str) -> Gate:
    """Holds where the whole interval lies above 0, against each of ``rivals``."""
    doubtful = [a for a in rivals if not (a.is_told_apart and a.low > 0)]
    # What is shown is the rival that comes closest, or is the furthest ahead.
    closest = min(doubtful or rivals, key=lambda a: a.difference)
    ahead = "can't be told to be" if doubtful else "is"
    why = (
        f"the recommended setting {ahead} above {whom}; against {judged.names[closest.arm]} it is "
        f"{closest.difference:+.3f} gold (95 % interval {closest.low:+.3f} to {closest.high:+.3f})"
    )
    return Gate(text, not doubtful, why)
