"""Where a spec's rewards stand in, scorers of those that are no functions out: models are loaded, files read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kltune.spec.rewards import RewardSpec
from kltune.tasks.protocol import Prompt, Scorer


@dataclass(frozen=True, slots=True)
class RewardPlace:
    """All that a reward needs beside its section."""

    look_up: Callable[[str], Path]
    """Where a relative path of the spec lies."""
    prompts: Sequence[Prompt]
    """Of all splits."""
    device: str = "cpu"
    folder: Path | None = None
    """Where judges keep their replies; none: nowhere, and they know none."""

    def make(self, field: str, spec: RewardSpec) -> Scorer:
        """The scorer of one.

        Raises:
            SpecError: it can't be made.
            EnvironmentMissingError: this machine lacks what it needs.
        """
        # These may import torch: not before one is there to be made.
        from kltune.rewards.context import RewardContext
        from kltune.rewards.make import make_scorer

        context = RewardContext(field, self.look_up, self.prompts, self.device, self.folder)
        return make_scorer(spec, context)
