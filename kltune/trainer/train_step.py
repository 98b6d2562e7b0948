"""One step of every occupied slot: rollout, score, log-probs, KL, advantage, loss, update.

The loss of a slot is the plain single-trial function of its rows; the losses are summed
and back-propagated once. Shapes: K active slots, N sequences per slot, T completion tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kltune.metrics.record import StepMetrics
from kltune.spec.trial import KLUnit
from kltune.trainer import step_metrics
from kltune.trainer.advantage import Advantages, group_advantages
from kltune.trainer.batch import Batch, SlotOutcome, UpdateResult
from kltune.trainer.controller import next_beta
from kltune.trainer.data import samples_of
from kltune.trainer.keyed import Purpose, prompt_indices, uniforms
from kltune.trainer.logprobs import Completions, Logprobs, score
from kltune.trainer.lora import AdapterView
from kltune.trainer.loss import LossInputs, LossRule, LossTerms, slot_loss
from kltune.trainer.micro_batch import within_memory
from kltune.trainer.optimizer import AdamWSettings
from kltune.trainer.parts import BankParts
from kltune.trainer.reduce import sequence_sum
from kltune.trainer.rollout import Rollout, rollout
from kltune.trainer.score import score_samples
from kltune.trainer.slot import SlotState
from kltune.units import loss_coefficient


def train_step(parts: BankParts, states: Mapping[int, SlotState]) -> tuple[StepMetrics, ...]:
    """Advance every slot in ``states`` by one step; states move on in place.

    Raises:
        TrialFault: a scorer failed, or memory ran out; nothing was changed yet.
    """
    slots = tuple(sorted(states))
    view = parts.stack.view(slots)
    clock = [time.perf_counter()]
    drawn = within_memory(lambda: _roll_out(parts, slots, states, view), slots[-1])
    clock.append(time.perf_counter())
    batch = _score(parts, slots, states, drawn)
    clock.append(time.perf_counter())
    result = within_memory(
        lambda: parts.micro_batch.run(lambda size: compute_gradients(parts, batch, view, size)),
        slots[-1],
    )
    parts.stack.collect(view, slots)
    clock.append(time.perf_counter())
    outcomes = [_finish_slot(parts, batch, result, row) for row in range(len(slots))]
    clock.append(time.perf_counter())
    seconds = step_metrics.shared_seconds(clock, len(slots))
    return tuple(
        step_metrics.step_metrics(parts, batch, result, outcome, seconds) for outcome in outcomes
    )


def _roll_out(
    parts: BankParts, slots: Sequence[int], states: Mapping[int, SlotState], view: AdapterView
) -> Rollout:
    trainer, train = parts.settings.trainer, parts.data.train
    indices: list[int] = []
    draws = []
    for slot in slots:
        state = states[slot]
        seed = state.spec.seed
        indices += prompt_indices(seed, state.step, len(train), trainer.prompts)
        draws.append(
            uniforms(seed, Purpose.ROLLOUT, state.step, trainer.rows, trainer.max_new_tokens)
        )
    prompts = train.pad(
        indices,
        parts.loaded.pad_id,
        parts.loaded.device,
        full_width=not parts.settings.compact,
    )
    with parts.stack.use(view):
        return rollout(
            parts.loaded, prompts, parts.to_device(draws), parts.sampling(trainer.group_size)
        )


def _score(
    parts: BankParts, slots: tuple[int, ...], states: Mapping[int, SlotState], drawn: Rollout
) -> Batch:
    trainer, train = parts.settings.trainer, parts.data.train
    scores: list[list[float]] = []
    for row, slot in enumerate(slots):
        state = states[slot]
        indices = prompt_indices(state.spec.seed, state.step, len(train), trainer.prompts)
        per_row = [train.prompts[i] for i in indices for _ in range(trainer.group_size)]
        samples = samples_of(parts.loaded, drawn, row, per_row)
        scores.append(score_samples(parts.data.proxy, samples, slot))
    return Batch(
        slots,
        tuple(states[slot] for slot in slots),
        drawn,
        torch.tensor(scores, dtype=torch.float32, device=parts.loaded.device),
    )


def compute_gradients(
    parts: BankParts, batch: Batch, view: AdapterView, micro_batch: int
) -> UpdateResult:
    """Leave the gradient of the summed losses in ``view``; ``micro_batch`` rows of every slot at a time.

    On policy the log-probs of the update are those of the rollout's weights, so one
    micro-batch needs one policy pass; with several, the KL paid in the reward needs
    whole groups first, so a pass without gradient comes before.
    """
    view.grad_KP.zero_()
    num_rows = batch.proxy_KN.shape[1]
    scoring = parts.scoring
    if micro_batch == num_rows:
        fresh = score(parts.loaded, parts.stack, view, Completions.of(batch.rollout), scoring)
        logprobs = _detach([fresh])
        result = UpdateResult(logprobs, _advantages(parts, batch, logprobs), [])
        result.terms = _backward(parts, batch, result, fresh, slice(0, num_rows), view)
        return result
    pieces = [slice(a, a + micro_batch) for a in range(0, num_rows, micro_batch)]
    cut = [Completions.of(batch.rollout, piece.start, piece.stop) for piece in pieces]
    with torch.no_grad():
        measured = [score(parts.loaded, parts.stack, view, rows, scoring) for rows in cut]
    logprobs = _detach(measured)
    result = UpdateResult(logprobs, _advantages(parts, batch, logprobs), [[] for _ in batch.slots])
    for piece, rows in zip(pieces, cut, strict=True):
        fresh = score(parts.loaded, parts.stack, view, rows, scoring)
        for kept, new in zip(
            result.terms, _backward(parts, batch, result, fresh, piece, view), strict=True
        ):
            kept.extend(new)
    return result


def _detach(pieces: Sequence[Logprobs]) -> Logprobs:
    def joined(name: str) -> Tensor:
        return torch.cat([getattr(piece, name).detach() for piece in pieces], dim=1)

    return Logprobs(
        joined("policy_KNT"), joined("reference_KNT"), joined("exact_kl_KNT"), joined("entropy_KNT")
    )


def _advantages(parts: BankParts, batch: Batch, logprobs: Logprobs) -> list[Advantages]:
    log_ratio_KNT = logprobs.policy_KNT - logprobs.reference_KNT
    kl_seq_KN = sequence_sum(log_ratio_KNT, batch.rollout.mask_KNT)
    group_size = parts.settings.trainer.group_size
    return [
        group_advantages(batch.proxy_KN[row], kl_seq_KN[row], beta_in_reward(state), group_size)
        for row, state in enumerate(batch.states)
    ]


def beta_in_reward(state: SlotState) -> float:
    """Price of a nat in the reward: beta where the penalty sits there, else 0."""
    penalty = state.spec.penalty
    return state.beta if penalty is not None and penalty.in_reward else 0.0


def coefficient(parts: BankParts, state: SlotState) -> float:
    """The number that multiplies the KL where the penalty puts it (advantage units in the loss)."""
    if state.spec.penalty is None:
        return 0.0
    settings = parts.settings
    return loss_coefficient(
        state.beta, settings.beta_unit, state.spec.penalty, settings.scale.sigma
    )


def _backward(
    parts: BankParts,
    batch: Batch,
    result: UpdateResult,
    fresh: Logprobs,
    piece: slice,
    view: AdapterView,
) -> list[list[LossTerms]]:
    mask_KNT = batch.rollout.mask_KNT
    terms: list[LossTerms] = []
    for row, state in enumerate(batch.states):
        rule = LossRule(
            penalty=state.spec.penalty,
            coefficient=coefficient(parts, state),
            clip_ratio=parts.settings.trainer.clip_ratio,
            total_tokens=int(mask_KNT[row].sum()),
        )
        inputs = LossInputs(
            logprobs_NT=fresh.policy_KNT[row],
            old_logprobs_NT=result.logprobs.policy_KNT[row, piece],
            ref_logprobs_NT=fresh.reference_KNT[row],
            advantage_N=result.advantages[row].advantage_N[piece],
            mask_NT=mask_KNT[row, piece],
        )
        terms.append(slot_loss(inputs, rule))
    # A NaN in one slot's loss stays there: d(sum)/d(loss_k) is 1 for every k.
    view.add_gradients(torch.stack([term.loss for term in terms]).sum())
    return [[term] for term in terms]


def _finish_slot(parts: BankParts, batch: Batch, result: UpdateResult, row: int) -> SlotOutcome:
    """Optimiser step and controller of one slot; a slot that is not finite keeps its weights and beta."""
    slot, state = batch.slots[row], batch.states[row]
    trainer = parts.settings.trainer
    bad_tokens = step_metrics.count_nonfinite(result.logprobs, batch.rollout.mask_KNT, row)
    loss = sum(float(term.loss.detach()) for term in result.terms[row])
    grad_P = parts.stack.grad_KP[slot]
    is_finite = bad_tokens == 0 and math.isfinite(loss)
    norm = float("nan")
    if is_finite:
        norm = parts.optimizer.step(
            slot,
            parts.stack.flat_KP[slot],
            grad_P,
            AdamWSettings(state.spec.learning_rate, trainer.weight_decay, trainer.max_grad_norm),
        )
        is_finite = math.isfinite(norm)
    kl_token, kl_seq = step_metrics.exact_kl(result.logprobs, batch.rollout.mask_KNT, row)
    used, price = state.beta, coefficient(parts, state)
    if is_finite:
        monitored = kl_token if parts.settings.kl_unit is KLUnit.TOKEN else kl_seq
        state.beta = next_beta(state.spec, state.beta, monitored, trainer.rows)
    state.step += 1
    return SlotOutcome(
        row, state.step, used, price, state.beta, norm, bad_tokens, is_finite, kl_token, kl_seq
    )
