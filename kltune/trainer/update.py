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

from kltune.trainer.aggregate import token_weights
from kltune.trainer.batch import Batch, Credit, Learned, Measured, SlotUpdates
from kltune.trainer.credit import credits_of, token_kl
from kltune.trainer.critic_pass import CriticPass, critic_pull, step_critic
from kltune.trainer.keyed import Purpose, generator
from kltune.trainer.logprobs import (
    Completions,
    Logprobs,
    Scoring,
    compare,
    hidden_states,
    take_rows,
)
from kltune.trainer.loss import LossInputs, LossRule, LossTerms, slot_loss
from kltune.trainer.measure import cut, every_row, measure, measure_with_graph
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
    for index_KB in _minibatches(parts, batch):
        gradients = parts.micro_batch.run(
            lambda size, rows=index_KB: _gradients(parts, batch, measured, credits, rows, size)
        )
        _apply(parts, batch, gradients, updates)
    return Learned(measured, credits, updates)


def _learn_once(parts: BankParts, batch: Batch) -> Learned:
    """One update of the whole rollout.

    On policy the log-probs of the update are those of the rollout's weights, so one
    micro-batch needs one policy pass; with several, the KL paid in the reward needs whole
    groups first, so a pass without gradient comes before.
    """
    rows_KN = every_row(batch)

    def attempt(size: int) -> tuple[Measured, list[Credit], Gradients]:
        view = parts.stack.view(batch.slots)
        if size < rows_KN.shape[1]:
            measured = measure(parts, batch, view, _scoring(parts, batch), size)
            credits = credits_of(parts, batch, measured)
            return measured, credits, _gradients(parts, batch, measured, credits, rows_KN, size)
        view.grad_KP.zero_()
        measured, fresh = measure_with_graph(parts, batch, view, _scoring(parts, batch))
        credits = credits_of(parts, batch, measured)
        weights = _weights(parts, batch, rows_KN)
        terms = _backward(parts, batch, measured, credits, (fresh, rows_KN, weights), view)
        parts.stack.collect(view, batch.slots)
        return measured, credits, Gradients([[term] for term in terms], [], None)

    measured, credits, gradients = parts.micro_batch.run(attempt)
    updates = _start(batch, measured)
    _apply(parts, batch, gradients, updates)
    return Learned(measured, credits, updates)


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
    index_KB: Tensor,
    micro_batch: int,
) -> Gradients:
    """Leave the gradients of the summed losses in the stack; ``micro_batch`` rows of every slot at a time."""
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
            _backward(parts, batch, measured, credits, (fresh, piece, weight_KBT), view),
            strict=True,
        ):
            kept.append(new)
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
    piece: tuple[Logprobs, Tensor, Tensor],
    view: TrainableView,
) -> list[LossTerms]:
    """Add the policy gradient of some rows to ``view``; ``piece``: their log-probs, indices and weights."""
    fresh, index_KB, weight_KBT = piece
    trainer = parts.settings.trainer
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
        terms.append(replace(found, loss=found.loss.detach()))
    # A NaN in one slot's loss stays there: d(sum)/d(loss_k) is 1 for every k.
    with parts.phases.of("update"):
        view.add_gradients(torch.stack(losses).sum())
    return terms


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
