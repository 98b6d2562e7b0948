"""Hidden states of policy and reference in, per-token log-probs, KL and entropy out, without full logits.

The head and everything over the vocabulary in one differentiable function, chunked over
tokens and vocabulary. The backward pass is written out and recomputes one chunk of logits
at a time; when all of them fit one chunk they are kept instead. Log-softmax in float32 or
wider, whatever the matmul's type. A token whose incoming gradients are all 0 gets exactly
0, whatever stands there. Shapes: M tokens, V vocabulary, D hidden; m: tokens of one chunk;
k: top-k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kltune.trainer.head_chunks import Grid, Side, sums_of, top_of
from kltune.trainer.head_gradient import Incoming, add_gradients
from kltune.trainer.logit_rule import PLAIN, LogitRule

CHUNK_ELEMENTS = 4_000_000
"""Logits (tokens x vocabulary) held at once: 16 MB in float32, of which half a dozen are needed."""
MIN_TOKENS = 32
"""Tokens of a chunk below which the vocabulary is cut too: that costs one more head pass."""

GRADIENTS = ("exact", "forward", "entropy", "top_k")
"""Columns besides the policy's log-prob that can carry a gradient."""


@dataclass(frozen=True, slots=True)
class Head:
    """A linear map from hidden states to logits."""

    weight: Tensor
    """``[V, D]``."""
    bias: Tensor | None
    """``[V]``."""
    rule: LogitRule = PLAIN
    """What the model does to its logits after it."""


@dataclass(frozen=True, slots=True)
class HeadRule:
    """What is computed, and what of it needs a gradient.

    Raises:
        ValueError: a gradient of a column that is not there, or a top_k below 1.
    """

    temperature: float
    top_k: int | None
    """Size of the top-k set (all tokens, if the vocabulary is smaller); None: no top-k columns."""
    gradients: frozenset[str]
    """Columns besides the policy's log-prob that need a gradient, of :data:`GRADIENTS`."""
    matmul_dtype: torch.dtype | None
    """Type of the head's matmul, as autocast would set it; None: that of the hidden states."""
    logits: tuple[LogitRule, LogitRule] = (PLAIN, PLAIN)
    """What policy and reference do to their logits; :func:`token_columns` takes it from their heads."""

    def __post_init__(self) -> None:
        unknown = sorted(self.gradients - set(GRADIENTS))
        if unknown:
            raise ValueError(f"no such column with a gradient: {', '.join(unknown)}")
        if self.top_k is None and "top_k" in self.gradients:
            raise ValueError("a gradient of top_k needs a top_k")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1 (got {self.top_k})")


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """Per-token numbers, ``[M]``, float32 or wider, nats."""

    policy_M: Tensor
    """log p of the target; carries the gradient."""
    reference_M: Tensor
    """log q of the target."""
    exact_M: Tensor
    """KL(policy || reference) over the vocabulary; a token with p = 0 adds 0."""
    forward_M: Tensor
    """KL(reference || policy) over the vocabulary; a token with q = 0 adds 0."""
    entropy_M: Tensor
    """Entropy of the policy."""
    top_k_M: Tensor | None
    """Sum of p u over the policy's top-k tokens; the set carries no gradient."""
    in_top_k_M: Tensor | None
    """bool: the target is in that set."""


def token_columns(
    policy_MD: Tensor,
    ref_MD: Tensor,
    targets_M: Tensor,
    policy_head: Head,
    ref_head: Head,
    rule: HeadRule,
) -> TokenColumns:
    """Both models' numbers for every token; the reference side never gets a gradient.

    Call it outside autocast: ``rule.matmul_dtype`` takes its place.

    Raises:
        ValueError: hidden states and targets of different lengths (a gather would read the wrong rows).
    """
    lengths = len(policy_MD), len(ref_MD), len(targets_M)
    if len(set(lengths)) > 1:
        raise ValueError(
            "hidden states and targets must be equally many "
            f"(got {lengths[0]} of the policy, {lengths[1]} of the reference, {lengths[2]} targets)"
        )
    rule = replace(rule, logits=(policy_head.rule, ref_head.rule))
    policy = (policy_MD, policy_head.weight, policy_head.bias)
    ref = (ref_MD, ref_head.weight, ref_head.bias)
    inputs = (*policy, *(None if t is None else t.detach() for t in ref), targets_M)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in policy):
        return TokenColumns(*_Columns.apply(rule, *inputs))
    with torch.no_grad():
        sides = _sides(rule, inputs[:6])
        return _measure(sides, targets_M, rule, _grid(sides))[0]


def _sides(rule: HeadRule, tensors: Sequence[Tensor | None]) -> tuple[Side, Side]:
    """Policy and reference from hidden states, weight and bias of each."""
    policy_MD, weight, bias, ref_MD, ref_weight, ref_bias = tensors
    assert policy_MD is not None
    assert weight is not None
    assert ref_MD is not None
    assert ref_weight is not None
    dtype = rule.matmul_dtype or policy_MD.dtype
    policy_weight = weight.to(dtype)
    # One head for both is converted once.
    is_shared = weight.data_ptr() == ref_weight.data_ptr() and weight.shape == ref_weight.shape
    policy_bias = None if bias is None else bias.to(dtype)
    return (
        Side(policy_MD.to(dtype), policy_weight, policy_bias, rule.temperature, rule.logits[0]),
        Side(
            ref_MD.to(dtype),
            policy_weight if is_shared else ref_weight.to(dtype),
            None if ref_bias is None else ref_bias.to(dtype),
            rule.temperature,
            rule.logits[1],
        ),
    )


def _grid(sides: tuple[Side, Side]) -> Grid:
    size = sides[0].hidden_MD.shape[0], sides[0].weight_VD.shape[0]
    return Grid.over(size, CHUNK_ELEMENTS, MIN_TOKENS)


@dataclass(slots=True)
class _Kept:
    """What the backward pass needs beside inputs and columns."""

    normalisers: list[Tensor | None]
    """Policy's and reference's, in turn, of each chunk of tokens."""
    top_ids_Mk: Tensor | None
    top_terms_Mk: Tensor | None
    """p (u + 1) of the top-k tokens."""
    log_probs: tuple[Tensor, Tensor] | None
    """Of both models, if all fit one chunk."""


def _measure(
    sides: tuple[Side, Side], targets_M: Tensor, rule: HeadRule, grid: Grid
) -> tuple[TokenColumns, _Kept]:
    kept = _Kept([], None, None, None)
    parts: list[tuple[Tensor, ...]] = []
    policy, ref = sides
    for rows in grid.rows:
        norms = policy.normaliser(rows, grid), ref.normaliser(rows, grid)
        kept.normalisers += norms
        total: list[Tensor] = []
        top: tuple[Tensor, ...] = ()
        for columns in grid.columns:
            log_p = policy.log_probs(rows, columns, norms[0])
            log_q = ref.log_probs(rows, columns, norms[1])
            sums = sums_of(log_p, log_q, targets_M[rows], columns)
            total = [a + b for a, b in zip(total, sums, strict=True)] if total else sums
            if rule.top_k is not None:
                top = top_of(log_p, log_q, columns.start, rule.top_k, top)
            if grid.is_whole:
                kept.log_probs = log_p, log_q
        parts.append((*total, *top))
    joined = [part[0] if len(part) == 1 else torch.cat(part) for part in zip(*parts, strict=True)]
    policy_M, reference_M, exact_M, forward_M, entropy_M, *top_Mk = joined
    top_k_M = is_in_M = None
    if top_Mk:
        top_p_Mk, top_q_Mk, top_ids_Mk = top_Mk
        p_Mk = top_p_Mk.exp()
        pu_Mk = (p_Mk * (top_p_Mk - top_q_Mk)).masked_fill_(p_Mk == 0, 0.0)
        kept.top_ids_Mk, kept.top_terms_Mk = top_ids_Mk, pu_Mk + p_Mk
        top_k_M, is_in_M = pu_Mk.sum(-1), (top_ids_Mk == targets_M[:, None]).any(-1)
    columns = policy_M, reference_M, exact_M, forward_M, entropy_M, top_k_M, is_in_M
    return TokenColumns(*columns), kept


class _Columns(torch.autograd.Function):
    """:func:`_measure` with its gradient."""

    @staticmethod
    def forward(ctx: Any, rule: HeadRule, *inputs: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Inputs: hidden states, weight and bias of policy and reference; targets."""
        targets_M = inputs[6]
        assert targets_M is not None
        sides = _sides(rule, inputs[:6])
        ctx.rule, ctx.grid = rule, _grid(sides)
        got, kept = _measure(sides, targets_M, rule, ctx.grid)
        log_p, log_q = kept.log_probs or (None, None)
        if not rule.gradients & {"exact", "forward"}:
            log_q = None  # not looked at again
        ctx.save_for_backward(
            *inputs,
            *(got.exact_M, got.entropy_M, kept.top_ids_Mk, kept.top_terms_Mk),
            *(log_p, log_q),
            *kept.normalisers,
        )
        ctx.set_materialize_grads(False)
        others = (got.exact_M, got.forward_M, got.entropy_M, got.top_k_M)
        named = zip(GRADIENTS, others, strict=True)
        fixed = [t for name, t in named if t is not None and name not in rule.gradients]
        fixed += [] if got.in_top_k_M is None else [got.in_top_k_M]
        ctx.mark_non_differentiable(got.reference_M, *fixed)
        return got.policy_M, got.reference_M, *others, got.in_top_k_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gradients of the policy's hidden states, weight and bias."""
        if all(grad is None for grad in grads):
            return (None,) * 8
        inputs, rest = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
        log_probs, norms = rest[4:6], rest[6:]
        policy, ref = _sides(ctx.rule, inputs[:6])
        incoming = Incoming(ctx.rule.temperature, inputs[6], grads, rest[:4])
        sums = [
            torch.zeros_like(t, dtype=torch.promote_types(t.dtype, torch.float32))
            if needed
            else None
            for t, needed in zip(inputs[:3], ctx.needs_input_grad[1:4], strict=True)
        ]
        for index, rows in enumerate(ctx.grid.rows):
            slope = incoming.slope(rows)
            for columns in ctx.grid.columns:
                log_p, log_q = log_probs
                if log_p is None:
                    log_p = policy.log_probs(rows, columns, norms[2 * index])
                    if slope.needs_reference:
                        log_q = ref.log_probs(rows, columns, norms[2 * index + 1])
                add_gradients(sums, policy, slope.at(log_p, log_q, columns), (rows, columns), slope)
        back = [
            None if total is None else total.to(t.dtype)
            for total, t in zip(sums, inputs[:3], strict=True)
        ]
        return None, *back, None, None, None, None
