"""What a scorer is made within: the field of the spec, prompts, places and device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kltune.errors import SpecError
from kltune.tasks.protocol import Prompt

CHECKED_PROMPTS = 20
"""Prompts whose columns are tried when a scorer is made."""


@dataclass(frozen=True, slots=True)
class RewardContext:
    """Where a reward stands."""

    field: str
    """Its field of the spec: ``task.gold``, ``task.proxy``, ``task.golds.NAME``."""
    resolve: Callable[[str], Path]
    """Where a relative path of the spec lies, whether or not anything is there."""
    prompts: Sequence[Prompt] = ()
    """Prompts of all splits: their columns are checked when the scorer is made."""
    device: str = "cpu"
    """Where the policy is."""
    folder: Path | None = None
    """Where a judge keeps its answers; none: in memory, until it is told where (``keep_in``)."""

    @property
    def must_score(self) -> bool:
        """Whether every completion needs a number, as it does for any gold."""
        return not self.field.startswith("task.proxy")  # or a part of it

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse prompts without one of the columns.

        Raises:
            SpecError: the first prompt that lacks one, and the columns that it has.
        """
        for prompt in self.prompts:
            lacking = [name for name in names if prompt.columns.get(name) is None]
            if lacking:
                raise SpecError(
                    f"{self.field}: needs the column(s) {', '.join(lacking)}, which prompt {prompt.id!r} "
                    f"lacks; columns there: {', '.join(prompt.columns) or 'none'}"
                )

    def file(self, text: str) -> Path:
        """The file that the spec names.

        Raises:
            SpecError: there is none.
        """
        path = self.resolve(text)
        if not path.is_file():
            raise SpecError(f"{self.field}: there is no file {path}")
        return path
