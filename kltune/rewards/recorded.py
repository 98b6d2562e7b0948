"""Scores from a file in, a scorer out that looks completions up."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from kltune.errors import SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.fingerprint import digest
from kltune.rewards.tables import read_table
from kltune.spec.rewards import RecordedSpec
from kltune.tasks.protocol import Sample
from kltune.tasks.scorers import ScorerError

LOG = logging.getLogger(__name__)
_SHOWN: Final = 60


class RecordedScorer:
    """Looks up the score of a prompt and its completion."""

    def __init__(self, spec: RecordedSpec, context: RewardContext) -> None:
        """Read the file.

        Raises:
            SpecError: it is not there, can't be read, or a score is no finite number.
        """
        path = context.file(spec.recorded)
        found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        columns = (spec.prompt, spec.completion, spec.score)
        for number, (prompt, completion, given) in enumerate(
            read_table(path, columns, context.field), start=1
        ):
            score = _number(given)
            if score is None:
                raise SpecError(
                    f"{context.field}: {path}, row {number}: {spec.score} is no finite number (got {given!r})"
                )
            found[_key(str(prompt), str(completion))].append(score)
        self.name = f"recorded {path.name}"
        self.fingerprint = digest(spec, path)
        self._scores = {key: fmean(scores) for key, scores in found.items()}
        self._missing = spec.missing
        self._must_score = context.must_score
        self.missed = 0
        """Completions that the file lacks, so far."""

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Look each sample up; NaN, or ``missing``, for one that the file lacks.

        Raises:
            ScorerError: a gold without ``missing`` lacks one.
        """
        found = [self._scores.get(_key(s.prompt.text, s.text)) for s in samples]
        lost = [s for s, score in zip(samples, found, strict=True) if score is None]
        if lost:
            self.missed += len(lost)
            LOG.info("%s lacks %d of %d completions", self.name, len(lost), len(samples))
            if self._must_score and self._missing is None:
                raise ScorerError(
                    f"scorer {self.name} has no score for {len(lost)} of {len(samples)} completions, as for "
                    f"{lost[0].text[:_SHOWN]!r} (prompt {lost[0].prompt.id!r}); gold must always score: say by "
                    "missing: NUMBER what such a one counts"
                )
        other = math.nan if self._missing is None else self._missing
        return [other if score is None else score for score in found]


def _key(prompt: str, completion: str) -> tuple[str, str]:
    return prompt.strip(), completion.strip()


def _number(given: Any) -> float | None:
    try:
        score = float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return score if math.isfinite(score) and not isinstance(given, bool) else None
