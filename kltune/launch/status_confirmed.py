"""A study's folder in, what its confirmation says of the setting to use out, for ``kltune status`` and ``kltune ls``.

One small file is read; a confirmation that can't be read counts as none here, `kltune report` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kltune.confirm.result import FILE, FOLDER, ArmFacts, ConfirmResult, Place, read_confirmed
from kltune.confirm.words import headline
from kltune.errors import StudyError
from kltune.trial.words import both_units, score

SLACK_S: Final = 1.0
"""Seconds by which a report may be older than what it is of: some disks keep whole seconds."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A confirmation, by the setting that it says to use."""

    result: ConfirmResult
    arm: ArmFacts
    """The recommended setting, or the one that was told to be above it."""
    place: Place

    @property
    def number(self) -> int | None:
        """The trial that was recommended when it was made."""
        return self.result.arms[0].number

    def is_of(self, recommended: int | None) -> bool:
        """Whether it is of what is recommended now: more trials may have run since."""
        return recommended is not None and self.number == recommended

    def gold_words(self) -> str:
        """Gold with its interval, on what, the KL there, and gold before training."""
        result, place = self.result, self.place
        start = next((p for p in result.main.places if result.arms[p.arm].role == "start"), None)
        before = "" if start is None else f"; gold {score(start.gold)} before training"
        return (
            f"{self.arm.name}: gold {score(place.gold)} (95 % interval {score(place.low)} to {score(place.high)}) on "
            f"{len(result.seeds)} fresh seeds and {result.num_prompts} test prompts, KL "
            f"{both_units(self.arm.kl_token, self.arm.kl_seq)} at step {self.arm.stop}{before}"
        )

    def as_json(self, recommended: int | None) -> dict[str, object]:
        """Gold in the gold's units, KL in nats."""
        result = self.result
        return {
            "trial": self.arm.number,
            "is_of_recommended": self.is_of(recommended),
            "verdict": result.main.verdict,
            "headline": headline(result),
            "gold": self.place.gold,
            "gold_low": self.place.low,
            "gold_high": self.place.high,
            "kl_token": self.arm.kl_token,
            "kl_seq": self.arm.kl_seq,
            "stop": self.arm.stop,
            "seeds": len(result.seeds),
            "test_prompts": result.num_prompts,
        }


def find_confirmed(study_path: Path) -> Confirmed | None:
    """The confirmation on record; none where there is none, or none that can be read."""
    try:
        result = read_confirmed(study_path)
    except (StudyError, OSError):
        return None
    if result is None:
        return None
    arm = result.main.winner
    if result.arms[arm].number is None:  # the untrained start is no setting
        arm = 0
    place = next((p for p in result.main.places if p.arm == arm), result.main.places[0])
    return Confirmed(result, result.arms[arm], place)


def confirmed_after(study_path: Path, made: float) -> bool:
    """Whether a confirmation is younger than what was made at that time (Unix seconds)."""
    try:
        return (study_path / FOLDER / FILE).stat().st_mtime > made + SLACK_S
    except OSError:
        return False
