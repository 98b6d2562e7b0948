"""Completions in, their valid tokens counted by hand beside what the trainer counts out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kltune.trainer.aggregate import token_weights
from kltune.trainer.bank import Bank
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.soundness.drawn import Drawn
from kltune.trainer.soundness.facts import CountedSample, MaskFacts
from kltune.trainer.text_rules import NO_RULES, TextRules

NUM_SHOWN = 3
"""Completions that are shown one by one."""

SHOWN_TEXT = 80
"""Characters of a completion that are shown."""


def count_by_hand(ids: Sequence[int], stop_ids: Sequence[int], rules: TextRules = NO_RULES) -> int:
    """Tokens up to and including the first stop id or the end of a stop string; all where there is none."""
    by_text = rules.place_of_stop(ids)
    if by_text is not None:
        ids = ids[:by_text]
    for place, token in enumerate(ids):
        if token in stop_ids:
            return place + 1
    return len(ids)


def mask_facts(
    bank: Bank, drawn: Drawn, found: Logprobs, step: tuple[Drawn, float] | None
) -> MaskFacts:
    """``found``: the trainer's numbers at ``drawn``. ``step``: what a step drew, and its ``tokens/step``."""
    trainer, stops = bank.parts.settings.trainer, bank.parts.loaded.stop_ids
    rows = drawn.rollout
    rules = bank.parts.loaded.text_rules
    by_hand = _by_hand(drawn, stops, rules)
    width = rows.ids_KNT.shape[2]
    places_T = torch.arange(width, device=rows.ids_KNT.device)
    right_NT = places_T < torch.tensor(by_hand, device=places_T.device)[:, None]
    mask_NT = rows.mask_KNT[0]
    weight_NT = token_weights(mask_NT, trainer.loss_aggregation, trainer.max_new_tokens)
    ended = [
        any(i in stops for i in ids[:n]) or rules.place_of_stop(ids[:n]) is not None
        for ids, n in zip(_ids(drawn), by_hand, strict=True)
    ]
    said = rows.ended_KN[0].tolist()
    is_wrong_N = (mask_NT != right_NT).any(dim=-1)
    shown = is_wrong_N.nonzero()[:NUM_SHOWN, 0].tolist() or drawn.few(NUM_SHOWN)
    return MaskFacts(
        samples=tuple(_shown(drawn, found, by_hand, row) for row in shown),
        by_hand=sum(by_hand),
        by_mask=int(mask_NT.sum()),
        by_lengths=int(rows.lengths_KN.sum()),
        scored=int((found.policy_KNT[0] != 0).sum()),
        weighted=float(weight_NT.where(~right_NT, 0.0).abs().sum()),
        wrong_rows=int(is_wrong_N.sum()),
        wrong_ends=sum(a != b for a, b in zip(ended, said, strict=True)),
        longest=int(rows.lengths_KN.max()),
        limit=trainer.max_new_tokens,
        prompt_tail_frac=_starts_with_prompt(drawn),
        step_by_hand=None if step is None else sum(_by_hand(step[0], stops, rules)),
        step_metric=None if step is None else step[1],
    )


def _ids(drawn: Drawn) -> list[list[int]]:
    return drawn.rollout.ids_KNT[0].tolist()


def _by_hand(drawn: Drawn, stops: Sequence[int], rules: TextRules) -> list[int]:
    return [count_by_hand(ids, stops, rules) for ids in _ids(drawn)]


def _starts_with_prompt(drawn: Drawn) -> float:
    pairs = zip(drawn.prompt_ids, _ids(drawn), strict=True)
    return sum(prompt[-1] == ids[0] for prompt, ids in pairs) / len(drawn)


def _shown(drawn: Drawn, found: Logprobs, by_hand: list[int], row: int) -> CountedSample:
    mask_T = drawn.rollout.mask_KNT[0, row]
    count = by_hand[row]
    return CountedSample(
        prompt_tokens=len(drawn.prompt_ids[row]),
        by_hand=count,
        by_mask=int(mask_T.sum()),
        in_place=bool(mask_T[:count].all() and not mask_T[count:].any()),
        scored=int((found.policy_KNT[0, row] != 0).sum()),
        ended=bool(drawn.rollout.ended_KN[0, row]),
        text=drawn.samples[row].text[:SHOWN_TEXT],
    )
