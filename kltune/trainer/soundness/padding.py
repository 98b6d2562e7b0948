"""Some completions in, how far their log-probs depend on padding and on neighbours out."""

from __future__ import annotations

import torch
from torch import Tensor

from kltune.trainer.bank import Bank
from kltune.trainer.encode import PaddedPrompts, pad_left
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.rollout import Rollout
from kltune.trainer.soundness.drawn import Drawn, trainer_logprobs
from kltune.trainer.soundness.facts import PaddingFacts

NUM_ROWS = 4
"""Completions that are scored, of lengths as different as they come."""

EXTRA = 7
"""Tokens of padding that are added."""

Pair = tuple[Tensor, Tensor]
"""Log-probs of policy and reference, at the valid tokens of all the completions, one after another."""


def padding_facts(bank: Bank, drawn: Drawn) -> PaddingFacts:
    """Score each completion alone, with more padding on either side, and all of them together."""
    few = drawn.few(NUM_ROWS)
    alone = _each(bank, drawn, few, 0, 0)
    left = _gaps(alone, _each(bank, drawn, few, EXTRA, 0))
    right = _gaps(alone, _each(bank, drawn, few, 0, EXTRA))
    together = _gaps(
        alone, _valid(trainer_logprobs(bank, together_with(bank, drawn, few)), drawn, few)
    )
    return PaddingFacts(
        num_tokens=sum(len(drawn.samples[i].token_ids) for i in few),
        policy_left=left[0],
        policy_right=right[0],
        policy_neighbours=together[0],
        reference_left=left[1],
        reference_right=right[1],
        reference_neighbours=together[1],
    )


def alone_with(bank: Bank, drawn: Drawn, row: int, left: int, right: int) -> Rollout:
    """One completion as a rollout of its own, with so many tokens of padding around it."""
    return _built(bank, drawn, [row], left, right)


def together_with(bank: Bank, drawn: Drawn, rows: list[int]) -> Rollout:
    """Some completions as one rollout, padded to the longest."""
    return _built(bank, drawn, rows, 0, 0)


def _built(bank: Bank, drawn: Drawn, rows: list[int], left: int, right: int) -> Rollout:
    """Put together from plain ids, not cut from the rollout: its mask is not what is asked here."""
    loaded = bank.parts.loaded
    prompt_ids = [drawn.prompt_ids[i] for i in rows]
    completions = [drawn.samples[i].token_ids for i in rows]
    width = max(map(len, completions)) + right
    ids = torch.full((1, len(rows), width), loaded.pad_id)
    mask = torch.zeros((1, len(rows), width), dtype=torch.bool)
    for at, completion in enumerate(completions):
        ids[0, at, : len(completion)] = torch.tensor(completion)
        mask[0, at, : len(completion)] = True
    prompts = pad_left(prompt_ids, loaded.pad_id, loaded.device, max(map(len, prompt_ids)) + left)
    ids, mask = ids.to(loaded.device), mask.to(loaded.device)
    nothing = torch.zeros(ids.shape, device=loaded.device)
    return Rollout(PaddedPrompts(prompts.ids, prompts.mask), ids, mask, nothing, mask.any(dim=-1))


def _each(bank: Bank, drawn: Drawn, rows: list[int], left: int, right: int) -> Pair:
    pairs = [
        _valid(trainer_logprobs(bank, alone_with(bank, drawn, row, left, right)), drawn, [row])
        for row in rows
    ]
    return torch.cat([p for p, _ in pairs]), torch.cat([r for _, r in pairs])


def _valid(found: Logprobs, drawn: Drawn, rows: list[int]) -> Pair:
    """At the valid tokens, which come first in every row."""
    lengths = [len(drawn.samples[i].token_ids) for i in rows]
    policy = [found.policy_KNT[0, at, :length] for at, length in enumerate(lengths)]
    reference = [found.reference_KNT[0, at, :length] for at, length in enumerate(lengths)]
    return torch.cat(policy), torch.cat(reference)


def _gaps(one: Pair, other: Pair) -> tuple[float, float]:
    first, second = (float((a - b).abs().max()) for a, b in zip(one, other, strict=True))
    return first, second
