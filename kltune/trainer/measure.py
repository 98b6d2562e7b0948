"""A rollout in, its log-probs, exact KL and values by the weights that drew it out; no gradient kept.

Shapes: K active slots, N sequences per slot, T completion tokens, D hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kltune.trainer import critic
from kltune.trainer.batch import Batch, Measured
from kltune.trainer.logprobs import (
    Completions,
    Hidden,
    Logprobs,
    Scoring,
    compare,
    hidden_states,
)
from kltune.trainer.parts import BankParts
from kltune.trainer.stack import TrainableView


@torch.no_grad()
def measure(
    parts: BankParts, batch: Batch, view: TrainableView, scoring: Scoring, micro_batch: int
) -> Measured:
    """``micro_batch`` rows of every slot at a time."""
    completions = Completions.of(batch.rollout)
    with parts.phases.of("logprobs"):
        pieces = [
            _measure_piece(parts, batch, view, scoring, completions.take(index_KB))
            for index_KB in cut(every_row(batch), micro_batch)
        ]
        return join(pieces)


def measure_with_graph(
    parts: BankParts, batch: Batch, view: TrainableView, scoring: Scoring
) -> tuple[Measured, Logprobs]:
    """The whole batch at once, and its log-probs with their graph: the first update needs no second pass."""
    completions = Completions.of(batch.rollout)
    with parts.phases.of("logprobs"):
        with torch.no_grad():
            reference = _reference(parts, batch, completions)
        policy = hidden_states(parts.loaded, parts.stack, view, completions)
        fresh = compare(parts.loaded, policy, reference, completions, scoring)
        with torch.no_grad():
            start_kl_KNT = _start_kl(parts, policy, fresh, completions, scoring)
            values_KNT = _values(parts, batch, completions)
        return Measured(fresh.detach(), reference, start_kl_KNT, values_KNT), fresh


def every_row(batch: Batch) -> Tensor:
    """Indices of all rows of all slots: ``[K, N]``."""
    num_slots, num_rows = batch.proxy_KN.shape
    return torch.arange(num_rows, device=batch.proxy_KN.device).expand(num_slots, num_rows)


def cut(index_KB: Tensor, size: int) -> list[Tensor]:
    """Row indices, ``size`` of every slot at a time."""
    return list(index_KB.split(size, dim=1))


def _measure_piece(
    parts: BankParts,
    batch: Batch,
    view: TrainableView,
    scoring: Scoring,
    completions: Completions,
) -> Measured:
    reference = _reference(parts, batch, completions)
    policy = hidden_states(parts.loaded, parts.stack, view, completions)
    logprobs = compare(parts.loaded, policy, reference, completions, scoring)
    start_kl_KNT = _start_kl(parts, policy, logprobs, completions, scoring)
    return Measured(logprobs, reference, start_kl_KNT, _values(parts, batch, completions))


def _reference(parts: BankParts, batch: Batch, completions: Completions) -> Hidden:
    rows = parts.rows
    moving = parts.stack.view(rows.references(batch.slots)) if rows.has_reference else None
    with parts.phases.of("reference"):
        return hidden_states(parts.loaded, parts.stack, moving, completions)


def _start_kl(
    parts: BankParts,
    policy: Hidden,
    logprobs: Logprobs,
    completions: Completions,
    scoring: Scoring,
) -> Tensor:
    """Exact KL to the start: where the reference moves, one more forward."""
    if not parts.rows.has_reference:
        return logprobs.exact_kl_KNT.detach()
    start = hidden_states(parts.loaded, parts.stack, None, completions)
    detached = Hidden(policy.states_KNTD.detach(), policy.head)
    return compare(parts.loaded, detached, start, completions, scoring).exact_kl_KNT.detach()


def _values(parts: BankParts, batch: Batch, completions: Completions) -> Tensor | None:
    if parts.critic is None:
        return None
    view = parts.stack.view(parts.rows.critics(batch.slots))
    hidden = hidden_states(parts.loaded, parts.stack, view, completions)
    return critic.values(hidden.states_KNTD, parts.critic.heads(batch.slots), completions.mask_KNT)


def join(pieces: list[Measured]) -> Measured:
    """The rows of all pieces, in order."""
    if len(pieces) == 1:
        return pieces[0]
    logprobs = Logprobs.join([piece.logprobs for piece in pieces])
    reference = Hidden(
        torch.cat([piece.reference.states_KNTD for piece in pieces], dim=1),
        pieces[0].reference.head,
    )
    start_kl_KNT = torch.cat([piece.start_kl_KNT for piece in pieces], dim=1)
    values = [piece.values_KNT for piece in pieces if piece.values_KNT is not None]
    values_KNT = torch.cat(values, dim=1) if values else None
    return Measured(logprobs, reference, start_kl_KNT, values_KNT)
