"""A reward of the spec that is no function in, its scorer out; no weights are loaded and nobody is asked yet."""

from __future__ import annotations

import time
from typing import Protocol

from kltune.rewards.context import RewardContext
from kltune.rewards.judge import JudgeScorer
from kltune.rewards.recorded import RecordedScorer
from kltune.rewards.unasked import Unasked
from kltune.rewards.verifiers.json_schema import JsonVerifier
from kltune.rewards.verifiers.mathematics import MathVerifier
from kltune.rewards.verifiers.unit_tests import CodeVerifier
from kltune.rewards.win_rate import JudgeDuel, ModelDuel, WinRateScorer
from kltune.spec.judge import JudgeSpec, UnaskedJudge
from kltune.spec.rewards import RecordedSpec, RewardModelSpec, RewardSpec, WinRateSpec, columns_of
from kltune.spec.verifiers import CodeVerifierSpec, JsonVerifierSpec, MathVerifierSpec
from kltune.tasks.protocol import Scorer

__all__ = ["MadeScorer", "RewardContext", "make_scorer"]


class MadeScorer(Scorer, Protocol):
    """A scorer that says what it was made from."""

    @property
    def fingerprint(self) -> str:
        """Differs where its scores may: goes into the study's inputs.json."""
        ...


def make_scorer(spec: RewardSpec, context: RewardContext) -> MadeScorer:
    """Make the scorer of ``spec``.

    Raises:
        SpecError: files, columns, labels or templates that are not there or not right.
        EnvironmentMissingError: a package, a device, a model of the hub or a judge's key is missing.
    """
    context.check_columns(columns_of(spec))
    match spec:
        case RewardModelSpec():
            return _model(spec, context)
        case MathVerifierSpec():
            return MathVerifier(spec, context)
        case JsonVerifierSpec():
            return JsonVerifier(spec, context)
        case CodeVerifierSpec():
            return CodeVerifier(spec, context)
        case UnaskedJudge():
            return Unasked(f"{spec.judge} (not asked)")
        case JudgeSpec():
            return JudgeScorer(spec, context)
        case RecordedSpec():
            return RecordedScorer(spec, context)
        case WinRateSpec():
            by = spec.win_rate.by
            duel = (
                JudgeDuel(by, context, time.sleep)
                if isinstance(by, JudgeSpec)
                else ModelDuel(_model(by, context))
            )
            return WinRateScorer(spec, context, duel)


def _model(spec: RewardModelSpec, context: RewardContext) -> MadeScorer:
    from kltune.rewards.classifier import RewardModel  # noqa: PLC0415 - torch and transformers

    return RewardModel(spec, context)
