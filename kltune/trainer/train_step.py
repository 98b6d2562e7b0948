"""One step of every occupied slot: rollout, score, log-probs, KL, advantage, loss, update, controller.

Shapes: K active slots, N sequences per slot, T completion tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from kltune.errors import OutOfMemoryFault
from kltune.metrics.record import StepMetrics
from kltune.spec.trial import KLUnit
from kltune.tasks.scorers import Scores
from kltune.trainer import step_metrics
from kltune.trainer.batch import Batch, Learned, SlotOutcome
from kltune.trainer.controller import next_control
from kltune.trainer.data import samples_of
from kltune.trainer.keyed import Purpose, prompt_indices, uniforms
from kltune.trainer.micro_batch import within_memory
from kltune.trainer.parts import BankParts
from kltune.trainer.rollout import Rollout, rollout
from kltune.trainer.score import score_batch
from kltune.trainer.shaping import Shaped, shape_scores
from kltune.trainer.slot import SlotState
from kltune.trainer.update import learn


def train_step(
    parts: BankParts, states: Mapping[int, SlotState]
) -> tuple[tuple[StepMetrics, ...], OutOfMemoryFault | None]:
    """Advance every slot in ``states`` by one step; states move on in place.

    The fault, if any, is of a slot that is learned from alone and ran out of memory; the
    others' steps stand.

    Raises:
        TrialFault: a scorer failed, or memory ran out. Nothing was changed yet, unless it ran out
            in a later update of the step: then the slots keep the updates made before.
    """
    ended, fault = _train(parts, states)
    seconds = parts.phases.metrics(len(states))
    return tuple(step_metrics.step_metrics(parts, *one, seconds) for one in ended), fault


def traced_step(
    parts: BankParts, slot: int, state: SlotState
) -> tuple[StepMetrics, tuple[Batch, Learned, SlotOutcome]]:
    """Advance one slot by the same step, and keep all that the step was made of.

    Raises:
        TrialFault: as for :func:`train_step`.
    """
    (ended,), _ = _train(replace(parts, keeps_inputs=True), {slot: state})
    return step_metrics.step_metrics(parts, *ended, parts.phases.metrics(1)), ended


def _train(
    parts: BankParts, states: Mapping[int, SlotState]
) -> tuple[list[tuple[Batch, Learned, SlotOutcome]], OutOfMemoryFault | None]:
    """The step itself."""
    slots = tuple(sorted(states))
    phases = parts.phases
    phases.restart()
    with phases.of("rollout"):
        drawn = within_memory(lambda: _roll_out(parts, slots, states), slots[-1])
    with phases.of("score"):
        batch = _score(parts, slots, states, drawn)
    ended: list[tuple[Batch, Learned, SlotOutcome]] = []
    blamed: list[int] = []
    reason = ""
    if parts.slot_by_slot and len(slots) > 1:
        for row, slot in enumerate(slots):
            one = batch.only(row, compact=parts.settings.compact)
            try:
                learned = within_memory(lambda one=one: learn(parts, one), slot)
            except OutOfMemoryFault as found:
                # Not the error itself: its frames hold the very tensors that did not fit.
                blamed += found.slots
                reason = str(found)
                continue
            ended.append((one, learned, _finish_slot(parts, one, learned, 0)))
    else:
        learned = within_memory(lambda: learn(parts, batch), max(slots))
        for row in range(len(slots)):
            ended.append((batch, learned, _finish_slot(parts, batch, learned, row)))
    return ended, OutOfMemoryFault(tuple(blamed), reason) if blamed else None


def _roll_out(parts: BankParts, slots: Sequence[int], states: Mapping[int, SlotState]) -> Rollout:
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
    return rollout(
        parts.loaded,
        prompts,
        parts.to_device(draws),
        parts.sampling(trainer.group_size),
        (parts.stack, parts.stack.view(slots)),
    )


def _score(
    parts: BankParts, slots: tuple[int, ...], states: Mapping[int, SlotState], drawn: Rollout
) -> Batch:
    trainer, train = parts.settings.trainer, parts.data.train
    judged: list[Scores] = []
    for row, slot in enumerate(slots):
        state = states[slot]
        indices = prompt_indices(state.spec.seed, state.step, len(train), trainer.prompts)
        per_row = [train.prompts[i] for i in indices for _ in range(trainer.group_size)]
        samples = samples_of(parts.loaded, drawn, row, per_row)
        judged.append(score_batch(parts.data.proxy, samples, slot, may_skip=True))
    scores = [one.values for one in judged]
    proxy_KN = torch.tensor(scores, dtype=torch.float32, device=parts.loaded.device)
    initial = (parts.settings.scale.mean, parts.settings.scale.std)
    shaped: list[Shaped] = [
        shape_scores(proxy_N, trainer.reward, initial, states[slot].scores)
        for proxy_N, slot in zip(proxy_KN, slots, strict=True)
    ]
    return Batch(
        slots,
        tuple(states[slot] for slot in slots),
        drawn,
        proxy_KN,
        tuple(shaped),
        tuple(judged),
    )


def _finish_slot(parts: BankParts, batch: Batch, learned: Learned, row: int) -> SlotOutcome:
    """Controller, reference and counters of one slot; a slot that is not finite keeps its beta."""
    slot, state = batch.slots[row], batch.states[row]
    mask_NT = batch.rollout.mask_KNT[row]
    measured, updates = learned.measured, learned.updates[row]
    kl_token, kl_seq = step_metrics.per_unit(measured.start_kl_KNT[row], mask_NT)
    anchor = step_metrics.per_unit(measured.logprobs.exact_kl_KNT[row], mask_NT)
    used = state.control
    state.step += 1
    if updates.is_finite:
        # The controller answers the KL to the reference that the penalty holds the policy to.
        seen = anchor[0] if parts.settings.kl_unit is KLUnit.TOKEN else anchor[1]
        facts = parts.control_facts(state.spec)
        state.control = next_control(state.control, seen, state.step, facts)
        state.scores = batch.shaped[row].running
        _refresh_reference(parts, slot, state.step)
    return SlotOutcome(
        row=row,
        step=state.step,
        used=used,
        control=state.control,
        nonfinite_tokens=step_metrics.count_nonfinite(measured, batch.rollout.mask_KNT, row),
        is_finite=updates.is_finite,
        kl_token=kl_token,
        kl_seq=kl_seq,
        anchor_kl_token=anchor[0],
        anchor_kl_seq=anchor[1],
    )


def _refresh_reference(parts: BankParts, slot: int, step: int) -> None:
    """Let a moving reference follow the policy, when its time has come."""
    refresh = parts.settings.trainer.reference
    if refresh.every is not None and step % refresh.every == 0:
        (row,) = parts.rows.references((slot,))
        parts.stack.copy_row(slot, row, refresh.mixture)
