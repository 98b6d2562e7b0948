"""Samples in, one finite number per sample out; what a scorer does wrong becomes that trial's fault."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kltune.errors import KltuneError, TrialFault
from kltune.tasks.protocol import Sample, Scorer


def score_samples(scorer: Scorer, samples: Sequence[Sample], slot: int) -> list[float]:
    """Call ``scorer`` on one slot's samples.

    One call per slot: a scorer that looks at its whole batch must not see other trials.

    Raises:
        TrialFault: the scorer raised, or returned the wrong number of scores, or one that is not finite.
    """
    try:
        scores = [float(value) for value in scorer(samples)]
    except KltuneError as error:
        text = str(error)
        named = text if text.startswith("scorer ") else f"scorer {scorer.name}: {text}"
        raise TrialFault((slot,), named) from error
    except (Exception, SystemExit) as error:
        raise TrialFault(
            (slot,), f"scorer {scorer.name} raised {type(error).__name__}: {error}"
        ) from error
    if len(scores) != len(samples):
        raise TrialFault(
            (slot,),
            f"scorer {scorer.name} returned {len(scores)} scores for {len(samples)} completions",
        )
    for sample, value in zip(samples, scores, strict=True):
        if not math.isfinite(value):
            raise TrialFault(
                (slot,),
                f"scorer {scorer.name} returned {value} for {sample.text[:200]!r} "
                f"(prompt {sample.prompt.id!r})",
            )
    return scores
