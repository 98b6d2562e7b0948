"""Settings, seeds and prompts in, the runs of a confirmation out; a design that can't tell anything is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from kltune.errors import SpecError
from kltune.spec.trial import TrialSpec
from kltune.statistics.confirmation import sign_flip_smallest_p

Role = Literal["recommended", "candidate", "baseline", "start"]

FEWEST_SEEDS: Final = 3
"""Below this there is no spread between seeds worth the name: 2 seeds estimate it from one difference."""
MOST_SEEDS: Final = 1000

_SEED_BITS: Final = 31


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting with the step at which it is used."""

    number: int | None
    """Of its trial in the study; none: the start, untrained."""
    role: Role
    origin: str
    """As in the trial's config: ``baseline:NAME``, ``zero``, ``sobol``, ..."""
    setting: TrialSpec
    """Its seed is the study's; runs replace it."""
    stop: int
    """Steps; for a baseline its own best one in the study, which is generous to it."""
    select_value: float | None = None
    """What the search was told: gold on select, corrected for having picked the best step."""
    select_gold: float | None = None
    """Gold on select at the stop."""

    @property
    def key(self) -> str:
        """What makes it another setting than the others, its seed aside."""
        setting = self.setting.model_copy(update={"seed": 0})
        return f"{setting.model_dump_json()} @ {self.stop}"


@dataclass(frozen=True, slots=True)
class Design:
    """Which settings are trained on which seeds, and judged on which prompts."""

    arms: tuple[Arm, ...]
    """The recommended one first; the start last."""
    seeds: tuple[int, ...]
    num_prompts: int
    """Test prompts that are used."""
    samples: int
    """Completions per prompt and run."""
    digest: str
    """SHA-256 of the test prompts."""

    @property
    def trained(self) -> tuple[Arm, ...]:
        """All arms but the start."""
        return tuple(arm for arm in self.arms if arm.role != "start")

    @property
    def completions(self) -> int:
        """Drawn on test prompts in all."""
        return len(self.arms) * len(self.seeds) * self.num_prompts * self.samples

    @property
    def steps(self) -> int:
        """Trained in all."""
        return len(self.seeds) * sum(arm.stop for arm in self.arms)

    def about(self, arm: Arm) -> dict[str, Any]:
        """What a run of ``arm`` notes beside its setting: whoever reads it knows what it is good for."""
        return {
            "of_trial": arm.number,
            "role": arm.role,
            "split": "test",
            "prompts": self.num_prompts,
            "samples": self.samples,
            "digest": self.digest,
        }


def refuse_hopeless(arms: Iterable[Arm], num_seeds: int, num_prompts: int) -> None:
    """Refuse what could never say anything, whatever the numbers.

    Raises:
        SpecError: which flag, what it is, and what is needed.
    """
    trained = [arm for arm in arms if arm.role != "start"]
    if num_seeds < FEWEST_SEEDS:
        raise SpecError(
            f"--seeds: {num_seeds} can't tell a setting from its luck: without {FEWEST_SEEDS} seeds there is no "
            "spread between seeds to compare with; 10 is usual (a sign-flip test over 5 seeds, "
            f"for one, can't get below p = {sign_flip_smallest_p(5):.3g})"
        )
    if num_seeds > MOST_SEEDS:
        raise SpecError(f"--seeds: at most {MOST_SEEDS} (got {num_seeds})")
    if num_prompts < 2:
        raise SpecError(
            f"the task has {num_prompts} test prompts, and at least 2 are needed: give its prompts a `split` "
            "field with test rows, or task.splits a share for test, and run the study anew"
        )
    if len(trained) < 2:
        raise SpecError(
            "--top: there is nothing to compare the recommended setting with: no baseline ran, and --top 1 takes no "
            "other setting of the study; use --top 2 or more"
        )


def fresh_seeds(root: int, count: int, used: Iterable[int]) -> tuple[int, ...]:
    """Seeds that no trial of the study has had, the same for the same study; more of them keep the first ones."""
    taken, seeds = set(used), list[int]()
    place = 0
    while len(seeds) < count:
        text = f"kltune confirm, root {root}, place {place}"
        digest = hashlib.sha256(text.encode()).digest()
        seed = int.from_bytes(digest[:4], "big") >> (32 - _SEED_BITS)
        place += 1
        if seed not in taken:
            taken.add(seed)
            seeds.append(seed)
    return tuple(seeds)
