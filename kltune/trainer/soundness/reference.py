"""Fresh samples of the start policy in, its KL to the reference and the arithmetic's own floor out."""

from __future__ import annotations

import torch

from kltune.trainer import kl
from kltune.trainer.bank import Bank
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.reduce import sequence_mean, token_mean
from kltune.trainer.soundness.drawn import Drawn, trainer_logprobs
from kltune.trainer.soundness.facts import ReferenceFacts
from kltune.trainer.soundness.padding import alone_with

NUM_FLOOR = 4
"""Completions that are scored a second time, one by one."""


def reference_facts(bank: Bank, drawn: Drawn, found: Logprobs) -> ReferenceFacts:
    """``found``: the trainer's numbers at ``drawn`` under the start policy."""
    mask_NT = drawn.rollout.mask_KNT[0]
    ratio_NT = (found.policy_KNT - found.reference_KNT)[0]
    few = drawn.few(NUM_FLOOR)
    apart = torch.cat([_again(bank, drawn, found, row) for row in few])
    return ReferenceFacts(
        num_tokens=int(mask_NT.sum()),
        exact_kl_token=float(token_mean(found.exact_kl_KNT[0], mask_NT)),
        exact_kl_seq=float(sequence_mean(found.exact_kl_KNT[0], mask_NT)),
        k1_token=float(token_mean(kl.k1(ratio_NT), mask_NT)),
        k3_token=float(token_mean(kl.k3(ratio_NT), mask_NT)),
        largest_gap=float(ratio_NT.where(mask_NT, 0.0).abs().max()),
        floor_kl_token=float(kl.k3(apart).mean()),
        floor_gap=float(apart.abs().max()),
        precision=bank.parts.settings.trainer.precision,
    )


def _again(bank: Bank, drawn: Drawn, found: Logprobs, row: int) -> torch.Tensor:
    """The reference's log-probs of one completion in the whole batch less those of it alone, nats."""
    length = len(drawn.samples[row].token_ids)
    alone = trainer_logprobs(bank, alone_with(bank, drawn, row, 0, 0))
    return found.reference_KNT[0, row, :length] - alone.reference_KNT[0, 0, :length]
