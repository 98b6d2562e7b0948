"""A measured, credited rollout in, optimiser updates of every slot out: passes, mini-batches, micro-batches.

The loss of a slot is the plain single-trial function of its rows; the losses are summed
and back-propagated once. Shapes: K active slots, B rows of one update, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kltune.trainer.activations import learns_by_groups
from kltune.trainer.aggregate import token_weights
from kltune.trainer.batch import Batch, Credit, Learned, Measured, SlotUpdates
from kltune.trainer.credit import credits_of, token_kl
from kltune.trainer.critic_pass import CriticPass, critic_pull, step_critic
from kltune.trainer.gradient_split import GradientSplit
from kltune.trainer.keyed import Purpose, generator
from kltune.trainer.logprobs import (
    Completions,
    Logprobs,
    Scoring,
    compare,
    hidden_states,
    take_rows,
)
from kltune.trainer.loss import LossInputs, LossRule, LossTerms, Seen, slot_loss
from kltune.trainer.measure import cut, every_row, join, measure, measure_with_graph
from kltune.trainer.optimizer import AdamWSettings
from kltune.trainer.parts import BankParts
from kltune.trainer.stack import TrainableView
from kltune.trainer.step_metrics import count_nonfinite


@dataclass(frozen=True, slots=True)
class Gradients:
    """What one update's backward pass left behind, besides the gradients in the stack."""

    terms: list[list[LossTerms]]
    """Per slot, one per micro-batch."""
    value_losses: list[float]
    """Per slot; empty without a critic."""
    head_grad_KH: Tensor | None
    """Of the value heads."""


def learn(parts: BankParts, batch: Batch) -> Learned:
    """Measure the rollout, credit its tokens, and update every slot as often as the trainer says.

    A slot that is not finite keeps its weights from there on.
    """
    trainer = parts.settings.trainer
    if trainer.epochs == trainer.minibatches == 1 and parts.critic is None:
        return _learn_once(parts, batch)
    view, scoring = parts.stack.view(batch.slots), _scoring(parts, batch)
    measured = parts.micro_batch.run(lambda size: measure(parts, batch, view, scoring, size))
    credits = credits_of(parts, batch, measured)
    updates = _start(batch, measured)
    for number, index_KB in enumerate(_minibatches(parts, batch)):
        rows = (index_KB, number == 0)
        gradients = parts.micro_batch.run(
            lambda size, rows=rows: _gradients(parts, batch, measured, credits, rows, size)
        )
        _apply(parts, batch, gradients, updates)
    return Learned(measured, credits, updates)


def _learn_once(parts: BankParts, batch: Batch) -> Learned:
    """One update of the whole rollout.

    On policy the log-probs of the update are those of the rollout's weights, so one
    micro-batch needs one policy pass, and so do several of whole groups; where the KL paid in
    the reward needs more rows than a micro-batch holds, a pass without gradient comes before.
    """
    rows_KN = every_row(batch)

    def attempt(size: int) -> tuple[Measured, list[Credit], Gradients]:
        view = parts.stack.view(batch.slots)
        trainer = parts.settings.trainer
        if size < rows_KN.shape[1] and learns_by_groups(trainer) and not size % trainer.group_size:
            return _learn_groups(parts, batch, size)
        if size < rows_KN.shape[1]:
            measured = measure(parts, batch, view, _scoring(parts, batch), size)
            credits = credits_of(parts, batch, measured)
            rows = (rows_KN, True)
            return measured, credits, _gradients(parts, batch, measured, credits, rows, size)
        view.grad_KP.zero_()
        measured, fresh = measure_with_graph(parts, batch, view, _scoring(parts, batch))
        credits = credits_of(parts, batch, measured)
        weights = _weights(parts, batch, rows_KN)
        terms = _backward(parts, batch, measured, credits, (fresh, rows_KN, weights, True), view)
        parts.stack.collect(view, batch.slots)
        return measured, credits, Gradients([[term] for term in terms], [], None)

    measured, credits, gradients = parts.micro_batch.run(attempt)
    updates = _start(batch, measured)
    _apply(parts, batch, gradients, updates)
    return Learned(measured, credits, updates)


def _learn_groups(
    parts: BankParts, batch: Batch, size: int
) -> tuple[Measured, list[Credit], Gradients]:
    """``size`` rows at a time, all of them whole groups: one pass each, activations kept of these alone."""
    view, scoring = parts.stack.view(batch.slots), _scoring(parts, batch)
    view.grad_KP.zero_()
    weights_KNT = _weights(parts, batch, every_row(batch))
    pieces: list[Measured] = []
    terms: list[list[LossTerms]] = [[] for _ in batch.slots]
    for first in range(0, weights_KNT.shape[1], size):
        some = batch.between(first, first + size)
        measured, fresh = measure_with_graph(parts, some, view, scoring)
        credits = credits_of(parts, some, measured)
        rows = (fresh, every_row(some), weights_KNT[:, first : first + size], first == 0)
        for kept, new in zip(
            terms, _backward(parts, some, measured, credits, rows, view), strict=True
        ):
            kept.append(new)
        pieces.append(measured)
    parts.stack.collect(view, batch.slots)
    measured = join(pieces)
    return measured, credits_of(parts, batch, measured), Gradients(terms, [], None)


def _scoring(parts: BankParts, batch: Batch) -> Scoring:
    return parts.scoring_for([state.spec for state in batch.states])


def _start(batch: Batch, measured: Measured) -> list[SlotUpdates]:
    mask_KNT = batch.rollout.mask_KNT
    return [
        SlotUpdates(count_nonfinite(measured, mask_KNT, row) == 0)
        for row in range(len(batch.slots))
    ]


def _minibatches(parts: BankParts, batch: Batch) -> Iterator[Tensor]:
    """Row indices of each update, ``[K, B]``; each slot's order is keyed by its seed, step and pass."""
    trainer = parts.settings.trainer
    everything = every_row(batch)
    size = trainer.rows // trainer.minibatches
    for epoch in range(trainer.epochs):
        if trainer.minibatches == 1:
            yield everything
            continue
        orders = [
            torch.from_numpy(
                generator(state.spec.seed, Purpose.MINIBATCH, state.step, epoch).permutation(
                    trainer.rows
                )
            )
            for state in batch.states
        ]
        yield from cut(torch.stack(orders).to(everything.device), size)


def _gradients(
    parts: BankParts,
    batch: Batch,
    measured: Measured,
    credits: list[Credit],
    update: tuple[Tensor, bool],
    micro_batch: int,
) -> Gradients:
    """Leave the gradients of the summed losses in the stack; ``micro_batch`` rows of every slot at a time.

    ``update``: its rows, and whether it is the first of the step.
    """
    index_KB, is_first = update
    view = parts.stack.view(batch.slots)
    view.grad_KP.zero_()
    scoring = _scoring(parts, batch)
    completions = Completions.of(batch.rollout)
    terms: list[list[LossTerms]] = [[] for _ in batch.slots]
    weights = _weights(parts, batch, index_KB).split(micro_batch, dim=1)
    critic = CriticPass(parts, batch, measured, credits)
    for piece, weight_KBT in zip(cut(index_KB, micro_batch), weights, strict=True):
        rows = completions.take(piece)
        with parts.phases.of("logprobs"):
            policy = hidden_states(parts.loaded, parts.stack, view, rows)
            fresh = compare(parts.loaded, policy, measured.reference.take(piece), rows, scoring)
        for kept, new in zip(
            terms,
            _backward(parts, batch, measured, credits, (fresh, piece, weight_KBT, is_first), view),
            strict=True,
        ):
            kept.append(new)
        is_first = False
        with parts.phases.of("update"):
            critic.add(rows, piece, weight_KBT)
    parts.stack.collect(view, batch.slots)
    critic.collect()
    return Gradients(terms, critic.losses, critic.head_grad_KH)


def _weights(parts: BankParts, batch: Batch, index_KB: Tensor) -> Tensor:
    """Aggregation weights of an update's tokens, ``[K, B, T]``."""
    trainer = parts.settings.trainer
    mask_KBT = take_rows(batch.rollout.mask_KNT, index_KB)
    return torch.stack(
        [
            token_weights(mask_BT, trainer.loss_aggregation, trainer.max_new_tokens)
            for mask_BT in mask_KBT
        ]
    )


def _backward(
    parts: BankParts,
    batch: Batch,
    measured: Measured,
    credits: list[Credit],
    piece: tuple[Logprobs, Tensor, Tensor, bool],
    view: TrainableView,
) -> list[LossTerms]:
    """Add the policy gradient of some rows to ``view``.

    ``piece``: their log-probs, indices and weights, and whether they are the step's first.
    """
    fresh, index_KB, weight_KBT, is_first = piece
    trainer = parts.settings.trainer
    split = GradientSplit(parts, batch, measured, credits, is_first)
    losses: list[Tensor] = []
    terms: list[LossTerms] = []
    for row, state in enumerate(batch.states):
        index_B = index_KB[row]
        rule = LossRule(
            penalty=state.spec.penalty,
            coefficient=credits[row].prices.loss,
            clip_low=trainer.clip_ratio,
            clip_high=trainer.clip_high,
            clip_max=trainer.clip_ratio_max,
            importance=trainer.importance,
            entropy_bonus=trainer.entropy_bonus,
            kl_clip=trainer.kl.clip,
        )
        old_NT = measured.logprobs.policy_KNT[row, index_B]
        inputs = LossInputs(
            logprobs_NT=fresh.policy_KNT[row],
            old_logprobs_NT=old_NT,
            advantage_NT=credits[row].advantages.advantage_NT[index_B],
            mask_NT=batch.rollout.mask_KNT[row, index_B],
            weight_NT=weight_KBT[row],
            kl=token_kl(fresh, old_NT, row),
            entropy_NT=fresh.entropy_KNT[row],
        )
        found = slot_loss(inputs, rule)
        losses.append(found.loss)
        split.add(row, index_B, inputs, rule)
        seen = Seen(index_B, inputs, rule) if parts.keeps_inputs else None
        terms.append(replace(found, loss=found.loss.detach(), seen=seen))
    # A NaN in one slot's loss stays there: d(sum)/d(loss_k) is 1 for every k.
    with parts.phases.of("update"):
        split.take(view)
        view.add_gradients(torch.stack(losses).sum())
        return split.shared(terms, view)


def _apply(
    parts: BankParts, batch: Batch, gradients: Gradients, updates: list[SlotUpdates]
) -> None:
    """One optimiser step of every slot that is still finite."""
    trainer = parts.settings.trainer
    for row, (slot, done) in enumerate(zip(batch.slots, updates, strict=True)):
        done.terms.append(gradients.terms[row])
        if gradients.value_losses:
            done.value_losses.append(gradients.value_losses[row])
        loss = sum(float(term.loss) for term in gradients.terms[row])
        loss += sum(gradients.value_losses[row : row + 1])
        done.is_finite = done.is_finite and math.isfinite(loss)
        if not done.is_finite:
            continue
        pull = critic_pull(parts, gradients.head_grad_KH, slot, row)
        if pull is not None and not math.isfinite(pull.norm):
            done.is_finite = False
            continue
        rate = batch.states[row].spec.learning_rate
        with parts.phases.of("update"):
            norm = parts.optimizer.step(
                slot,
                parts.stack.flat_KP[slot],
                parts.stack.grad_KP[slot],
                AdamWSettings(rate, trainer.weight_decay, trainer.max_grad_norm),
            )
        done.norms.append(norm)
        done.is_finite = math.isfinite(norm)
        if pull is not None and done.is_finite:
            step_critic(parts, pull, slot, rate)
