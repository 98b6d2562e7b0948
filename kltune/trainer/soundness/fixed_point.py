"""A bank in, what one whole training step does to policy and reference at learning rate 0 and at the real one out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from kltune.metrics.record import StepMetrics
from kltune.spec.trial import TrialSpec
from kltune.trainer.bank import Bank
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.reduce import token_mean
from kltune.trainer.soundness.drawn import Drawn, trainer_logprobs
from kltune.trainer.soundness.facts import FixedPointFacts
from kltune.trainer.soundness.memory import Peak, measured_peak


@dataclass(frozen=True, slots=True)
class Stepped:
    """What the two steps left for other probes; slot 0 holds the policy after the real one."""

    facts: FixedPointFacts
    metrics: StepMetrics
    """Of the real step, the first of its trial."""
    peak: Peak
    """Memory during that step."""


def step_twice(bank: Bank, setting: TrialSpec, drawn: Drawn, before: Logprobs) -> Stepped:
    """Put ``setting`` into slot 0 anew for each step; ``before``: the log-probs of ``drawn`` at the start.

    Raises:
        TrialFault: the proxy failed, or memory ran out.
    """
    base = base_hash(bank)
    frozen = setting.model_copy(update={"learning_rate": 0.0})  # no trial may have that rate
    start = _restart(bank, frozen)
    bank.train_step()
    judged = 1 if _critic_has_own_rate(bank) else len(start)
    at_zero = _changed(start[:judged], _weights(bank)[:judged])
    start = _restart(bank, setting)
    (metrics,), peak = measured_peak(bank.parts.loaded.device, bank.train_step)
    moved = _changed(start, _weights(bank))
    after = trainer_logprobs(bank, drawn.rollout)
    kept = torch.equal(after.reference_KNT, before.reference_KNT)
    change = (_weights(bank)[0] - start[0]).abs()
    facts = FixedPointFacts(
        weights_kept_at_zero=at_zero == 0,
        changed_at_zero=at_zero,
        learning_rate=setting.learning_rate,
        weights_moved=not torch.equal(start[0], _weights(bank)[0]),
        changed_frac=moved / sum(w.numel() for w in start),
        largest_change=float(change.max()),
        reference_kept=base_hash(bank) == base,
        reference_logprobs_kept=None if bank.parts.rows.has_reference else kept,
        shares_storage=_shares_storage(bank),
        grad_norm=metrics.values["train/grad_norm"],
        zero_group_frac=metrics.values["train/zero_group_frac"],
        kl_after_token=float(token_mean(after.exact_kl_KNT[0], drawn.rollout.mask_KNT[0])),
    )
    return Stepped(facts, metrics, peak)


def base_hash(bank: Bank) -> str:
    """SHA-256 of all of the frozen base's tensors, by name; adapters hold theirs elsewhere."""
    digest = hashlib.sha256()
    for name, tensor in bank.parts.loaded.model.state_dict().items():
        digest.update(name.encode())
        flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(memoryview(flat.numpy()))
    return digest.hexdigest()


def _critic_has_own_rate(bank: Bank) -> bool:
    """Whether the critic learns at a rate that a trial's does not change: then the policy alone stays at 0."""
    critic = bank.parts.settings.trainer.value_function
    return critic is not None and critic.learning_rate is not None


def _restart(bank: Bank, setting: TrialSpec) -> list[Tensor]:
    """A fresh trial in slot 0; its trained weights, the policy's first."""
    bank.evict(0)
    bank.admit(0, 0, setting, None)
    return _weights(bank)


def _weights(bank: Bank) -> list[Tensor]:
    """Copies of everything that is trained in slot 0."""
    parts = bank.parts
    found = [parts.stack.flat_KP[row].detach().clone() for row in parts.rows.of(0)]
    if parts.critic is not None:
        found.append(parts.critic.heads((0,)).detach().clone())
    return found


def _changed(before: list[Tensor], after: list[Tensor]) -> int:
    """Numbers that are not the same to the last bit."""
    pairs = zip(before, after, strict=True)
    return sum(int((_bits(a) != _bits(b)).sum()) for a, b in pairs)


def _bits(values: Tensor) -> Tensor:
    return values.view(torch.int32 if values.element_size() == 4 else torch.int64)


def _shares_storage(bank: Bank) -> bool:
    trained = bank.parts.stack.flat_KP.untyped_storage().data_ptr()
    return any(
        parameter.untyped_storage().data_ptr() == trained
        for parameter in bank.parts.loaded.model.parameters()
    )
