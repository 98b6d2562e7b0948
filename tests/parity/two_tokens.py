"""Two tokens of a vocabulary of five: a reference, a reward per completion, and where penalties must end.

Knows nothing of kltune's losses: fixed points are solved from their equations. A point is a
joint distribution, ``[5, 5]`` by first and second token, float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

VOCABULARY = 5


@dataclass(frozen=True)
class Problem:
    """What every penalty is given."""

    ref_VV: Tensor
    """Joint probabilities of the reference."""
    reward_VV: Tensor
    beta: float

    @property
    def ref_first_V(self) -> Tensor:
        return self.ref_VV.sum(1)

    @property
    def ref_second_VV(self) -> Tensor:
        """By first token, then second."""
        return self.ref_VV / self.ref_VV.sum(1, keepdim=True)

    @property
    def sigma(self) -> float:
        """Standard deviation of the reward under the reference, as one prompt's groups have it."""
        mean = (self.ref_VV * self.reward_VV).sum()
        return float((self.ref_VV * (self.reward_VV - mean).square()).sum().sqrt())


def problem(ref_VV: Tensor, seed: int, beta: float) -> Problem:
    """A random reward table over this reference."""
    generator = torch.Generator().manual_seed(seed)
    drawn_VV = torch.randn(VOCABULARY, VOCABULARY, generator=generator, dtype=torch.float64)
    return Problem(ref_VV, drawn_VV, beta)


def ends(given: Problem) -> dict[str, Tensor]:
    """Where a penalty can end, by the kind of its gradient."""
    return {
        "whole": sequence_full(given),
        "local": token_local(given),
        "forward": forward_local(given),
        "jeffreys": jeffreys_local(given),
    }


def sequence_full(given: Problem) -> Tensor:
    """ref exp(R / beta): the optimum of E[R] - beta KL of whole completions."""
    tilted_VV = given.ref_VV * (given.reward_VV / given.beta).exp()
    return tilted_VV / tilted_VV.sum()


def token_local(given: Problem) -> Tensor:
    """Where the first token does not pay for the KL that it leads to: ref exp(E[R | first] / beta)."""

    def choose(ref_V: Tensor, value_V: Tensor) -> Tensor:
        return (ref_V.log() + value_V / given.beta).softmax(-1)

    return _backwards(given, choose)


def forward_local(given: Problem) -> Tensor:
    """The same with KL(reference || policy): p = beta ref / (lambda - value), each position."""

    def choose(ref_V: Tensor, value_V: Tensor) -> Tensor:
        # The sum falls in lambda, from infinity at the largest value; at largest + beta it is below 1.
        low, high = value_V.max(), value_V.max() + given.beta
        for _ in range(60):
            middle = (low + high) / 2
            if float((given.beta * ref_V / (middle - value_V)).sum()) > 1:
                low = middle
            else:
                high = middle
        return given.beta * ref_V / (high - value_V)

    return _backwards(given, choose)


def jeffreys_local(given: Problem) -> Tensor:
    """The same with both directions: p (value - beta u - lambda) + beta ref = 0, each position."""

    def at(lagrange: Tensor, ref_V: Tensor, value_V: Tensor) -> Tensor:
        low, high = ref_V.log() - 60, ref_V.log() + 60
        for _ in range(60):
            log_p = (low + high) / 2
            u = log_p - ref_V.log()
            is_low = value_V - given.beta * u - lagrange + given.beta * (-u).exp() > 0
            low, high = log_p.where(is_low, low), high.where(is_low, log_p)
        return ((low + high) / 2).exp()

    def choose(ref_V: Tensor, value_V: Tensor) -> Tensor:
        low, high = value_V.min() - 50 * given.beta, value_V.max() + 50 * given.beta
        for _ in range(60):
            middle = (low + high) / 2
            if float(at(middle, ref_V, value_V).sum()) > 1:
                low = middle
            else:
                high = middle
        return at(high, ref_V, value_V)

    return _backwards(given, choose)


def _backwards(given: Problem, choose: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The second token against its reward, then the first against the expected reward behind it."""
    second_VV = torch.stack(
        [choose(q, r) for q, r in zip(given.ref_second_VV, given.reward_VV, strict=True)]
    )
    first_V = choose(given.ref_first_V, (second_VV * given.reward_VV).sum(1))
    return first_V[:, None] * second_VV


def total_variation(one_VV: Tensor, other_VV: Tensor) -> float:
    """Half the sum of absolute differences, 0 to 1."""
    return 0.5 * float((one_VV - other_VV).abs().sum())
