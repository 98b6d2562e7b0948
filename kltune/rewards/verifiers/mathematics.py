"""Completions and right answers in, 1 or 0 out: mathematics compared by math-verify, in a process that can be ended."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kltune.errors import EnvironmentMissingError, SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.fingerprint import digest
from kltune.rewards.line_worker import LineWorker
from kltune.spec.verifiers import MathVerifierSpec
from kltune.tasks.protocol import Prompt, Sample
from kltune.tasks.scorers import ScorerError

LOG = logging.getLogger(__name__)
_CHILD: Final = Path(__file__).with_name("mathematics_child.py")


class MathVerifier:
    """Compares the answer of a text (boxed first, else the last one) with the prompt's."""

    name = "math verifier"

    def __init__(self, spec: MathVerifierSpec, context: RewardContext) -> None:
        """Check the column; the child process starts with the first sample.

        Raises:
            SpecError: a prompt without an answer.
            EnvironmentMissingError: math-verify is not installed.
        """
        if importlib.util.find_spec("math_verify") is None:
            raise EnvironmentMissingError(
                f"{context.field}: the math verifier needs the package math-verify: pip install 'kltune[verifiers]'"
            )
        self.fingerprint = digest(spec)
        self._spec, self._field = spec, context.field
        self._worker = LineWorker(_CHILD)
        self.ended = 0
        """Texts so far whose comparison was ended; they count as wrong."""
        context.check_columns([spec.answer])
        other = next((p for p in context.prompts if not _is_answer(p.columns[spec.answer])), None)
        if other is not None:
            raise SpecError(
                f"{context.field}: the column {spec.answer!r} of prompt {other.id!r} must hold text or a number "
                f"(got {str(other.columns[spec.answer])[:60]!r})"
            )
        empty = next((p for p in context.prompts if not self._answer(p)), None)
        if empty is not None:
            after = "" if spec.answer_after is None else f" after {spec.answer_after!r}"
            raise SpecError(
                f"{context.field}: prompt {empty.id!r} has no answer{after} in its column {spec.answer!r} "
                f"({str(empty.columns[spec.answer])[:60]!r})"
            )

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """1 where the answers are equal.

        Raises:
            ScorerError: the right answer of a prompt is nothing that can be compared.
        """
        known: dict[tuple[str, str], float] = {}
        scores: list[float] = []
        for sample in samples:
            key = (sample.prompt.id, sample.text)
            if key not in known:
                known[key] = self._score(sample)
            scores.append(known[key])
        return scores

    def _score(self, sample: Sample) -> float:
        job: dict[str, Any] = {"text": sample.text, "answer": self._answer(sample.prompt)}
        said = self._worker.ask(job, self._spec.timeout)
        if said is None:
            self.ended += 1
            LOG.info("math verifier: %r was ended after %g s", sample.text[:60], self._spec.timeout)
            return 0.0
        if said["equal"] is None:
            raise ScorerError(
                f"scorer {self.name} can't read the right answer {job['answer'][:60]!r} of prompt "
                f"{sample.prompt.id!r} (column {self._spec.answer!r}) as mathematics"
            )
        return float(said["equal"])

    def _answer(self, prompt: Prompt) -> str:
        text = str(prompt.columns.get(self._spec.answer, ""))
        after = self._spec.answer_after
        if after is not None:
            _, found, text = text.rpartition(after)
            text = text if found else ""
        return text.strip()


def _is_answer(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
