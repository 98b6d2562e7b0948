"""Which tokens are outliers, and the text around them."""

from __future__ import annotations

import math

import pytest
import tiny
import torch
from oracle import Texts, push, recorded_bank
from torch import Tensor

from kltune.metrics.record import TokenOutlier
from kltune.tasks.protocol import Prompt, Sample
from kltune.trainer.outliers import CONTEXT, MOST, token_outliers

TOKENIZER = tiny.tokenizer()


def sample(ids: tuple[int, ...], name: str = "p") -> Sample:
    return Sample(Prompt(name, "w1"), TOKENIZER.decode(ids), ids, ended=ids[-1] == 1)


def found(kl_RT: Tensor, samples: list[Sample]) -> tuple[TokenOutlier, ...]:
    lengths = torch.tensor([[len(s.token_ids)] for s in samples])
    mask_RT = torch.arange(kl_RT.shape[1]) < lengths
    return token_outliers(TOKENIZER, samples, (kl_RT, -kl_RT, -2 * kl_RT), mask_RT)


def test_the_largest_come_first_each_with_its_own_text_and_numbers() -> None:
    kl_RT = torch.tensor([[0.1, 0.9, 0.2, 0.0], [0.5, 0.05, 9.0, 9.0]])
    rows = found(kl_RT, [sample((2, 3, 4, 1), "a"), sample((5, 6), "b")])
    assert [(o.prompt_id, o.position) for o in rows] == [
        ("a", 1),
        ("b", 0),
        ("a", 2),
        ("a", 0),
        ("b", 1),
    ], "masked tokens (9.0) and those without KL are no outliers"
    first = rows[0]
    assert (first.before, first.token, first.after) == ("w0", "w1", "w2 <eos>")
    assert (first.kl, first.policy_logprob, first.reference_logprob) == pytest.approx(
        (0.9, -0.9, -1.8)
    )
    assert (rows[1].before, rows[1].token, rows[1].after) == ("", "w3", "w4")


def test_few_are_kept_with_a_few_tokens_of_text() -> None:
    ids = tuple(range(2, 30))
    (first, *_), rows = (outliers := found(torch.ones(1, 28).cumsum(1), [sample(ids)])), outliers
    assert len(rows) == MOST
    assert first.position == 27
    middle = next(o for o in rows if o.position == 18)
    assert len(middle.before.split()) == len(middle.after.split()) == CONTEXT
    assert middle.before.split()[-1] == "w17"


def test_a_token_that_is_not_finite_leads() -> None:
    rows = found(torch.tensor([[0.5, math.nan, math.inf]]), [sample((2, 3, 4))])
    assert {o.position for o in rows[:2]} == {1, 2}
    assert math.isnan(next(o for o in rows if o.position == 1).kl)


def test_rounding_is_no_outlier() -> None:
    assert found(torch.tensor([[1e-6, 9e-4]]), [sample((2, 3))]) == ()
    assert len(found(torch.tensor([[2e-3]]), [sample((1,))])) == 1


def test_an_evaluation_finds_the_tokens_that_independent_forwards_find() -> None:
    bank, _, gold = recorded_bank(2)
    for slot in (0, 1):
        bank.admit(slot, slot, tiny.trial(seed=slot), None)
        push(bank, slot, seed=slot)
    evaluations = bank.evaluate([0, 1])
    for m, samples in zip(evaluations, gold.calls, strict=True):
        texts = Texts(bank.parts.stack.flat_KP[m.slot], bank.parts.stack, samples)
        exact = texts.exact().detach()
        now, ref = (x.detach() for x in texts.sampled())
        flat = [
            (s.prompt.id, t, TOKENIZER.decode([token]))
            for s in samples
            for t, token in enumerate(s.token_ids)
        ]
        order = exact.argsort(descending=True)[:MOST].tolist()
        assert [(o.prompt_id, o.position, o.token) for o in m.outliers] == [flat[i] for i in order]
        assert [o.kl for o in m.outliers] == pytest.approx(exact[order].tolist(), rel=1e-4)
        assert [o.policy_logprob for o in m.outliers] == pytest.approx(
            now[order].tolist(), rel=1e-4
        )
        assert [o.reference_logprob for o in m.outliers] == pytest.approx(
            ref[order].tolist(), rel=1e-4
        )
    assert evaluations[0].outliers != evaluations[1].outliers


def test_a_trial_that_has_not_moved_has_none() -> None:
    bank = tiny.bank(1)
    bank.admit(0, 0, tiny.trial(), None)
    assert bank.evaluate([0])[0].outliers == ()
