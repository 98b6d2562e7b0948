"""A finished step's tensors in, the same as plain numbers out: everything that its loss was made of.

Shapes: N sequences of one slot, B rows of one micro-batch, T completion tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from kltune.metrics.trace import StepTrace, TracedCompletion, TracedRow, TracedUpdate
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.advantage import STD_EPSILON, VARIANCE_EPSILON
from kltune.trainer.batch import Batch, Learned, SlotOutcome
from kltune.trainer.data import samples_of
from kltune.trainer.keyed import prompt_indices
from kltune.trainer.loss import LossTerms, Seen
from kltune.trainer.parts import DIFFERENTIABLE, BankParts
from kltune.trainer.shaping import Moments


def step_trace(parts: BankParts, batch: Batch, learned: Learned, outcome: SlotOutcome) -> StepTrace:
    """What one slot's step was made of; its updates must have kept their inputs."""
    return StepTrace(
        trial=batch.states[outcome.row].trial_number,
        step=outcome.step,
        rules=_rules(parts, batch, learned, outcome),
        completions=tuple(_completions(parts, batch, learned, outcome)),
        updates=tuple(_updates(learned, batch, outcome.row)),
    )


def _rules(
    parts: BankParts, batch: Batch, learned: Learned, outcome: SlotOutcome
) -> Mapping[str, Any]:
    settings, trainer = parts.settings, parts.settings.trainer
    spec = batch.states[outcome.row].spec
    price, critic = learned.credits[outcome.row].prices, trainer.value_function
    return {
        "algorithm": trainer.algorithm,
        "group_size": trainer.group_size,
        "max_new_tokens": trainer.max_new_tokens,
        "temperature": trainer.temperature,
        "aggregation": trainer.loss_aggregation,
        "importance": trainer.importance,
        "credit": trainer.credit,
        "clip_low": trainer.clip_ratio,
        "clip_high": trainer.clip_high,
        "clip_max": trainer.clip_ratio_max,
        "entropy_bonus": trainer.entropy_bonus,
        "penalty": None if spec.penalty is None else spec.penalty.value,
        "beta": outcome.used.beta,
        "beta_unit": settings.beta_unit.value,
        "price_reward": price.reward,
        "price_loss": price.loss,
        "kl_clip": trainer.kl.clip,
        "sigma_r": settings.scale.sigma,
        "score_shift": _shift(parts, batch, outcome.row),
        "score_factor": batch.shaped[outcome.row].factor,
        "score_clip": trainer.reward.clip,
        "std_epsilon": STD_EPSILON,
        "variance_epsilon": VARIANCE_EPSILON,
        "gamma": None if critic is None else critic.gamma,
        "gae_lambda": None if critic is None else critic.gae_lambda,
        "whiten": None if critic is None else critic.whiten,
        "learning_rate": spec.learning_rate,
        "max_grad_norm": trainer.max_grad_norm,
        "stop_ids": list(parts.loaded.stop_ids),
        "pad_id": parts.loaded.pad_id,
        "reference_moves": parts.rows.has_reference,
    }


def _shift(parts: BankParts, batch: Batch, row: int) -> float:
    """What is subtracted from the raw score (`shape_scores`)."""
    match parts.settings.trainer.reward.normalize:
        case "none":
            return 0.0
        case "initial":
            return parts.settings.scale.mean
        case "running":
            return batch.shaped[row].running.mean
        case "batch":
            proxy_N = batch.proxy_KN[row]
            return Moments().merge(proxy_N[~proxy_N.isnan()]).mean


def _completions(
    parts: BankParts, batch: Batch, learned: Learned, outcome: SlotOutcome
) -> Iterator[TracedCompletion]:
    row, trainer, train = outcome.row, parts.settings.trainer, parts.data.train
    drawn, credit = batch.rollout, learned.credits[outcome.row]
    seed = batch.states[row].spec.seed
    indices = prompt_indices(seed, outcome.step - 1, len(train), trainer.prompts)
    prompts: list[Prompt] = [train.prompts[i] for i in indices for _ in range(trainer.group_size)]
    samples = samples_of(parts.loaded, drawn, row, prompts)
    num_rows = len(samples)
    own = slice(row * num_rows, (row + 1) * num_rows)
    prompt_ids, prompt_mask = drawn.prompts.ids[own], drawn.prompts.mask[own].bool()
    columns = _rollout_columns(parts, batch, learned, row)
    for n, sample in enumerate(samples):
        valid_T = drawn.mask_KNT[row, n]
        proxy = float(batch.proxy_KN[row, n])
        yield TracedCompletion(
            row=n,
            prompt_id=str(sample.prompt.id),
            prompt=sample.prompt.text,
            prompt_ids=tuple(prompt_ids[n][prompt_mask[n]].tolist()),
            completion=sample.text,
            completion_ids=tuple(drawn.ids_KNT[row, n].tolist()),
            mask=tuple(valid_T.int().tolist()),
            token_texts=_token_texts(parts, sample),
            ended=sample.ended,
            proxy=None if math.isnan(proxy) else proxy,
            score=float(batch.shaped[row].score_N[n]),
            reward=float(credit.advantages.reward_N[n]),
            columns={name: _numbers(values_NT[n], valid_T) for name, values_NT in columns.items()},
        )


def _token_texts(parts: BankParts, sample: Sample) -> tuple[str, ...]:
    return tuple(parts.loaded.tokenizer.batch_decode([[i] for i in sample.token_ids]))


def _numbers(values_T: Tensor, valid_T: Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in values_T.detach()[valid_T].tolist())


def _rollout_columns(
    parts: BankParts, batch: Batch, learned: Learned, row: int
) -> dict[str, Tensor]:
    logprobs, credit = learned.measured.logprobs, learned.credits[row]
    found: dict[str, Tensor | None] = {
        "policy": logprobs.policy_KNT[row],
        "reference": logprobs.reference_KNT[row],
        "sampler": batch.rollout.sampler_logprobs_KNT[row],
        "exact_kl": logprobs.exact_kl_KNT[row],
        "forward_kl": logprobs.forward_kl_KNT[row],
        "top_k_kl": None if logprobs.top_k_KNT is None else logprobs.top_k_KNT[row],
        "in_top_k": None if logprobs.in_top_k_KNT is None else logprobs.in_top_k_KNT[row],
        "start_kl": learned.measured.start_kl_KNT[row] if parts.rows.has_reference else None,
        "entropy": logprobs.entropy_KNT[row],
        "advantage": credit.advantages.advantage_NT,
        "value": None if learned.measured.values_KNT is None else learned.measured.values_KNT[row],
        "return": credit.returns_NT,
    }
    return {name: values_NT for name, values_NT in found.items() if values_NT is not None}


def _updates(learned: Learned, batch: Batch, row: int) -> Iterator[TracedUpdate]:
    done = learned.updates[row]
    for index, terms in enumerate(done.terms):
        yield TracedUpdate(
            loss=sum(float(term.loss) for term in terms),
            loss_policy=sum(term.policy for term in terms),
            loss_kl=sum(term.kl for term in terms),
            loss_entropy=sum(term.entropy for term in terms),
            grad_norm=done.norms[index] if index < len(done.norms) else None,
            rows=tuple(_update_rows(terms, batch, row, is_only=len(done.terms) == 1)),
        )


def _update_rows(
    terms: list[LossTerms], batch: Batch, row: int, *, is_only: bool
) -> Iterator[TracedRow]:
    """Rows in the order of the micro-batches; the only update of a step takes the rollout's in order."""
    seen_rows = 0
    for term in terms:
        seen = term.seen
        assert seen is not None, "the step was not asked to keep its inputs"
        own = seen.rows_B.tolist()
        for place, index in enumerate(own):
            # Counted within the rollout, whatever part of it the micro-batch was cut from.
            number = seen_rows + place if is_only else int(index)
            valid_T = batch.rollout.mask_KNT[row, number]
            yield _update_row(seen, place, number, valid_T)
        seen_rows += len(own)


def _update_row(seen: Seen, place: int, number: int, valid_T: Tensor) -> TracedRow:
    inputs, penalty = seen.inputs, seen.rule.penalty
    found: dict[str, Tensor | None] = {"logprob": inputs.logprobs_NT}
    needed = DIFFERENTIABLE.get(penalty, frozenset[str]()) if penalty else frozenset[str]()
    if inputs.kl is not None:
        kl = inputs.kl
        found["exact_kl"] = kl.exact if "exact" in needed else None
        found["forward_kl"] = kl.forward if "forward" in needed else None
        found["top_k_kl"] = kl.top_k if "top_k" in needed else None
        found["in_top_k"] = kl.in_top_k if "top_k" in needed else None
    found["entropy"] = inputs.entropy_NT if seen.rule.entropy_bonus else None
    valid_T = valid_T[: inputs.logprobs_NT.shape[1]]
    weights = inputs.weight_NT[place][valid_T]
    return TracedRow(
        row=number,
        weight=float(weights[0]) if len(weights) else 0.0,
        columns={
            name: _numbers(values_NT[place], valid_T)
            for name, values_NT in found.items()
            if values_NT is not None
        },
    )
