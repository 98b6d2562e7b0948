"""Gradients of a token's columns in, gradients of a chunk of logits out, and on to hidden states, weight and bias.

With a = logits / temperature, p = softmax(a) of the policy, q of the reference,
u = log p - log q, y the target and S the top-k set:

    log p_y          d/da_v = 1[v = y] - p_v
    exact            d/da_v = p_v (u_v - exact)
    forward          d/da_v = p_v - q_v
    entropy          d/da_v = -p_v (log p_v + entropy)
    top-k            d/da_v = 1[v in S] p_v (u_v + 1) - p_v sum_S p (u + 1)

A model that scales or caps its logits after the head (logit_rule.py) pulls them back through that.

Shapes: M tokens, V vocabulary, D hidden; m and v: those of one chunk; k: top-k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from kltune.trainer.head_chunks import Side, places_in


@dataclass(frozen=True, slots=True)
class Slope:
    """Incoming gradients of some tokens' columns, ``[m]``, and the points that a chunk adds on top."""

    constant_m: Tensor
    """Factor of p_v that is the same for every v."""
    exact_m: Tensor | None
    forward_m: Tensor | None
    entropy_m: Tensor | None
    points: tuple[tuple[Tensor, Tensor], ...]
    """Token ids ``[m, n]`` and what their logits' gradients get on top."""
    is_silent_m: Tensor
    """Tokens whose incoming gradients are all 0."""

    @property
    def needs_reference(self) -> bool:
        """Whether :meth:`at` looks at log q."""
        return self.exact_m is not None or self.forward_m is not None

    def at(self, log_p: Tensor, log_q: Tensor | None, columns: slice) -> Tensor:
        """Gradient of a chunk's logits (over the temperature), ``[m, v]``."""
        p = log_p.exp()
        constant = self.constant_m[:, None]
        if self.exact_m is None and self.entropy_m is None:
            grad = p.mul_(constant)
        else:
            is_zero = p == 0
            factor = torch.zeros_like(p) + constant
            if self.exact_m is not None and log_q is not None:
                factor.addcmul_(log_p - log_q, self.exact_m[:, None])
            if self.entropy_m is not None:
                factor.addcmul_(log_p, self.entropy_m[:, None], value=-1)
            grad = factor.mul_(p).masked_fill_(is_zero, 0.0)
        if self.forward_m is not None and log_q is not None:
            grad.addcmul_(log_q.exp(), self.forward_m[:, None], value=-1)
        for ids, values in self.points:
            places, inside = places_in(columns, ids)
            grad.scatter_add_(-1, places, values if inside is None else values.where(inside, 0.0))
        # 0 x NaN: what stands at a masked token must not matter.
        return grad.masked_fill_(self.is_silent_m[:, None], 0.0)


@dataclass(frozen=True, slots=True)
class Incoming:
    """Gradients of the columns, as autograd hands them over, and what was saved to go on from them."""

    temperature: float
    targets_M: Tensor
    grads: tuple[Tensor | None, ...]
    saved: tuple[Tensor | None, ...]
    """exact, entropy, top-k ids and terms."""

    def slope(self, rows: slice) -> Slope:
        """Of a chunk of tokens; the temperature is in it."""
        saved = [None if t is None else t[rows] for t in self.saved]
        exact_m, entropy_m, top_ids_mk, top_terms_mk = saved
        policy, _, exact, forward, entropy, top_k = (
            None if g is None else g[rows] / self.temperature for g in self.grads[:6]
        )
        constants: list[Tensor] = []
        points: list[tuple[Tensor, Tensor]] = []
        if policy is not None:
            constants.append(-policy)
            points.append((self.targets_M[rows, None], policy[:, None]))
        if exact is not None and exact_m is not None:
            constants.append(-exact * exact_m)
        if forward is not None:
            constants.append(forward)
        if entropy is not None and entropy_m is not None:
            constants.append(-entropy * entropy_m)
        if top_k is not None and top_ids_mk is not None and top_terms_mk is not None:
            constants.append(-top_k * top_terms_mk.sum(-1))
            points.append((top_ids_mk, top_k[:, None] * top_terms_mk))
        given = [g for g in (policy, exact, forward, entropy, top_k) if g is not None]
        is_silent_m = reduce(torch.logical_and, [g == 0 for g in given])
        return Slope(
            reduce(torch.add, constants), exact, forward, entropy, tuple(points), is_silent_m
        )


def add_gradients(
    sums: list[Tensor | None],
    policy: Side,
    grad_mv: Tensor,
    chunk: tuple[slice, slice],
    slope: Slope,
) -> None:
    """Carry a chunk's logit gradients on to hidden states, weight and bias, in the matmul's type."""
    rows, columns = chunk
    hidden_MD, weight_VD, bias_V = sums
    if not policy.rule.is_plain:
        # 0 x NaN: what stands at a masked token must not matter.
        pulled_mv = policy.pull(grad_mv, rows, columns)
        grad_mv = pulled_mv.masked_fill_(slope.is_silent_m[:, None], 0.0)
    if bias_V is not None:
        bias_V[columns] += grad_mv.sum(0)
    grad_mv = grad_mv.to(policy.hidden_MD.dtype)
    if hidden_MD is not None:
        hidden_MD[rows] += grad_mv @ policy.weight_VD[columns]
    if weight_VD is not None:
        kept_mD = policy.hidden_MD[rows].masked_fill(slope.is_silent_m[:, None], 0.0)
        weight_VD[columns] += grad_mv.T @ kept_mD
