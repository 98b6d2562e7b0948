"""Completions in, how far the sampler's own log-probs are from the trainer's out."""

from __future__ import annotations

from kltune.trainer.logprobs import Logprobs
from kltune.trainer.soundness.drawn import Drawn
from kltune.trainer.soundness.facts import SamplerFacts

Seen = tuple[Drawn, Logprobs]
"""Completions, and the trainer's numbers at them under the weights that drew them."""


def sampler_facts(start: Seen, moved: Seen | None) -> SamplerFacts:
    """``moved``: the same after a step."""
    start_gap, start_mean = _gap(start)
    moved_gap, moved_mean = (None, None) if moved is None else _gap(moved)
    return SamplerFacts(
        num_tokens=int(start[0].rollout.mask_KNT.sum()),
        start_gap=start_gap,
        start_mean=start_mean,
        moved_gap=moved_gap,
        moved_mean=moved_mean,
    )


def _gap(seen: Seen) -> tuple[float, float]:
    drawn, found = seen
    rows = drawn.rollout
    gaps = (rows.sampler_logprobs_KNT - found.policy_KNT)[rows.mask_KNT]
    return float(gaps.abs().max()), float(gaps.mean())
