"""Samples in, one number per sample out; what a scorer does wrong becomes that trial's fault."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch

from kltune.errors import KltuneError, ServiceError, TrialFault
from kltune.tasks.protocol import Sample, Scorer
from kltune.tasks.scorers import Scores, detailed


def score_samples(
    scorer: Scorer, samples: Sequence[Sample], slot: int, *, may_skip: bool = False
) -> list[float]:
    """Call ``scorer`` on one slot's samples; see :func:`score_batch`.

    Raises:
        TrialFault: the scorer failed.
    """
    return score_batch(scorer, samples, slot, may_skip=may_skip).values


def score_batch(
    scorer: Scorer, samples: Sequence[Sample], slot: int, *, may_skip: bool = False
) -> Scores:
    """Call ``scorer`` on one slot's samples; parts of a sum and completions that it failed on come along.

    One call per slot: a scorer that looks at its whole batch must not see other trials.
    What it changes of torch's state for the process (gradients off, another default type) is put back.
    ``may_skip``: None and NaN mean that a completion can't be scored, and come back as NaN.

    Raises:
        TrialFault: the scorer raised, returned the wrong number of scores, one that is not
            finite (or, where it may not skip, missing), or none at all.
        ServiceError: a judge can't be asked now.
    """
    try:
        with _torch_state_kept():
            found = detailed(scorer, samples)
            scores = found.values
    except ServiceError:
        raise  # no trial's fault: the study stops, and can go on
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
        if math.isinf(value) or (math.isnan(value) and not may_skip):
            shown = "no score (None or NaN)" if math.isnan(value) else value
            raise TrialFault(
                (slot,),
                f"scorer {scorer.name} returned {shown} for {sample.text[:200]!r} "
                f"(prompt {sample.prompt.id!r})",
            )
    if samples and all(math.isnan(value) for value in scores):
        first = f"; {found.problems[0]}" if found.problems else ""
        raise TrialFault(
            (slot,), f"scorer {scorer.name} could score none of {len(samples)} completions{first}"
        )
    return found


@contextmanager
def _torch_state_kept() -> Generator[None]:
    """What a scorer can change for everybody is as it was afterwards, also where it raised."""
    grad, dtype, threads = (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
    )
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    products = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ) != (deterministic, warns):
            torch.use_deterministic_algorithms(deterministic, warn_only=warns)
        if torch.get_float32_matmul_precision() != products:
            torch.set_float32_matmul_precision(products)
