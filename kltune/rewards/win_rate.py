"""Completions and the reference's recorded answers in; 1 for a win, 0 for a loss, 0.5 for a tie out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from kltune.errors import SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.fingerprint import digest
from kltune.rewards.judge import Judge
from kltune.rewards.replies import Winner, comparison, read_winner
from kltune.rewards.tables import read_table
from kltune.spec.judge import JudgeSpec
from kltune.spec.rewards import WinRateSpec
from kltune.tasks.protocol import Prompt, Sample, Scorer
from kltune.tasks.scorers import ScorerError


class Duel(Protocol):
    """Compares answers with the reference's, pair by pair."""

    def __call__(self, pairs: Sequence[tuple[Sample, str]]) -> list[float]:
        """Win of each sample over the text beside it: 1, 0.5, 0 or between; NaN where it can't be said."""
        ...


class JudgeDuel:
    """By a judge, asked twice with the answers swapped: what it prefers by place alone becomes a tie."""

    def __init__(
        self, spec: JudgeSpec, context: RewardContext, sleep: Callable[[float], None]
    ) -> None:
        """As :class:`Judge`."""
        self.judge = Judge(spec, context, sleep)
        self._spec = spec
        self._lost = 0.5 if context.must_score else math.nan

    def __call__(self, pairs: Sequence[tuple[Sample, str]]) -> list[float]:
        """The mean of both orders; an unreadable verdict leaves the other, two of them count as a tie for gold."""
        questions = [
            comparison(self._spec, sample.prompt.text, *answers)
            for sample, other in pairs
            for answers in ((sample.text, other), (other, sample.text))
        ]
        verdicts = self.judge.ask(questions, read_winner)
        return [
            self._mean(_points(first, "A"), _points(second, "B"))
            for first, second in zip(verdicts[::2], verdicts[1::2], strict=True)
        ]

    def _mean(self, *points: float | None) -> float:
        known = [point for point in points if point is not None]
        return sum(known) / len(known) if known else self._lost


class ModelDuel:
    """By a reward model: the higher score wins."""

    def __init__(self, model: Scorer) -> None:
        """``model`` scores one answer at a time."""
        self._model = model
        self._known: dict[tuple[str, str], float | None] = {}

    def __call__(self, pairs: Sequence[tuple[Sample, str]]) -> list[float]:
        """Score both; the reference's answers once."""
        new = {
            (sample.prompt.id, text): Sample(sample.prompt, text, (), True)
            for sample, text in pairs
            if (sample.prompt.id, text) not in self._known
        }
        if new:
            self._known.update(zip(new, self._model(list(new.values())), strict=True))
        own = self._model([sample for sample, _ in pairs])
        others = [self._known[sample.prompt.id, text] for sample, text in pairs]
        return [_beats(mine, other) for mine, other in zip(own, others, strict=True)]


class WinRateScorer:
    """Win of each completion over the reference's recorded answer to the same prompt."""

    def __init__(self, spec: WinRateSpec, context: RewardContext, duel: Duel) -> None:
        """Read the answers.

        Raises:
            SpecError: the file can't be read, or lacks the answer to a prompt.
        """
        given = spec.win_rate
        path = context.file(given.reference)
        rows = read_table(path, (given.prompt, given.completion), context.field)
        self._answers: dict[str, str] = {}
        for prompt, completion in rows:
            self._answers.setdefault(str(prompt).strip(), str(completion))
        self.name = f"win rate against {path.name}"
        self.fingerprint = digest(spec, path)
        self._duel = duel
        lacking = [p for p in context.prompts if p.text.strip() not in self._answers]
        if lacking:
            raise SpecError(
                f"{context.field}: {path} has no answer to {len(lacking)} of {len(context.prompts)} prompts, as "
                f"to {lacking[0].id!r}"
            )

    @property
    def judge(self) -> Judge | None:
        """Who compares; none: a reward model does."""
        return self._duel.judge if isinstance(self._duel, JudgeDuel) else None

    def keep_in(self, folder: Path) -> None:
        """Where a judge's replies are written from now on; a reward model has none."""
        if self.judge is not None:
            self.judge.keep_in(folder)

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """The same text as the reference's is a tie, and nobody is asked.

        Raises:
            ScorerError: no answer of the reference to a prompt.
            ServiceError: the judge can't be used, or its budget is spent.
        """
        others = [self._answer(sample.prompt) for sample in samples]
        differ = [
            (sample, other)
            for sample, other in zip(samples, others, strict=True)
            if sample.text.strip() != other.strip()
        ]
        wins = iter(self._duel(differ) if differ else ())
        return [
            0.5 if sample.text.strip() == other.strip() else next(wins)
            for sample, other in zip(samples, others, strict=True)
        ]

    def _answer(self, prompt: Prompt) -> str:
        answer = self._answers.get(prompt.text.strip())
        if answer is None:
            raise ScorerError(f"scorer {self.name} has no answer to prompt {prompt.id!r}")
        return answer


def _points(verdict: Winner | None, own: Winner) -> float | None:
    return None if verdict is None else 0.5 if verdict == "tie" else float(verdict == own)


def _beats(mine: float | None, other: float | None) -> float:
    if mine is None or other is None or math.isnan(mine) or math.isnan(other):
        return math.nan
    return 0.5 if mine == other else float(mine > other)
