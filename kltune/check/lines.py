"""All that is known of a spec before training in; its lines out, those that others follow from first."""

from __future__ import annotations

from kltune.check.logprobs import (
    dropout_line,
    logprob_line,
    padding_line,
    sampler_line,
    temperature_line,
)
from kltune.check.memory import memory_line
from kltune.check.result import Line
from kltune.check.reward_scale import Spread, kl_in_tokens, reward_scale_line
from kltune.check.scale import Scale
from kltune.check.scores import lost_scores, scorer_lines
from kltune.check.splits import splits_line
from kltune.check.steps import fixed_point_line, mask_line, start_line
from kltune.check.study import controller_line, spec_line
from kltune.check.text import token_lines
from kltune.check.weights import weights_line
from kltune.spec.study import StudySpec
from kltune.tasks.protocol import Splits
from kltune.trainer.soundness.facts import CheapSoundness, MaskFacts, Soundness
from kltune.trainer.soundness.score_facts import ScoringFacts
from kltune.trainer.soundness.token_facts import TokenFacts

OF_PROXY = ("proxy", "reward_scale")
"""Lines that nothing can be said in while the proxy is yet to be learned."""


def lines_of_spec(
    spec: StudySpec, splits: Splits, tokens: TokenFacts | None = None
) -> tuple[Line, ...]:
    """What spec and prompts alone say; ``tokens``: how prompts are encoded, where that is known."""
    return (
        splits_line(splits, tokens, spec.evaluate.prompts),
        spec_line(spec),
        controller_line(spec),
    )


def lines_of(found: Soundness, spec: StudySpec) -> tuple[Line, ...]:
    """What the probes say."""
    scale = _scale(found.masks, found.scoring, spec)
    return (
        weights_line(found.unread_weights),
        *token_lines(found.tokens, found.stops),
        dropout_line(found.dropout, scale),
        padding_line(found.padding, scale),
        logprob_line(found.oracle, scale),
        temperature_line(found.oracle, scale),
        mask_line(found.masks),
        sampler_line(found.sampler, scale),
        start_line(found.reference, scale),
        fixed_point_line(found.fixed_point, scale, lost_scores(found.scoring.proxy)),
        *scorer_lines(found.scoring),
        reward_scale_line(spread_of(found.masks, found.scoring), spec),
        memory_line(found.memory),
    )


def cheap_lines(found: CheapSoundness, spec: StudySpec, splits: Splits) -> tuple[Line, ...]:
    """The part that every sweep looks at; scorers are judged where sigma_R is measured."""
    return (
        splits_line(splits, found.tokens, spec.evaluate.prompts),
        *token_lines(found.tokens, found.stops, only_certain=True),
        mask_line(found.masks),
        start_line(found.reference, _scale(found.masks, found.scoring, spec)),
    )


def spread_of(masks: MaskFacts, scoring: ScoringFacts) -> Spread | None:
    """The proxy under the reference, on the completions that were drawn; none where it failed."""
    proxy = scoring.proxy
    if proxy.fault is not None:
        return None
    return Spread(proxy.group_std or 0.0, proxy.std or 0.0, _mean_tokens(masks, scoring))


def _scale(masks: MaskFacts, scoring: ScoringFacts, spec: StudySpec) -> Scale:
    return Scale(spec.trainer.precision, *kl_in_tokens(spec, _mean_tokens(masks, scoring)))


def _mean_tokens(masks: MaskFacts, scoring: ScoringFacts) -> float:
    return max(1.0, masks.by_hand / max(1, scoring.proxy.num_samples))
