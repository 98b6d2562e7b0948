"""What a model does to its logits after the head: chosen by numbers, applied, and pulled back through."""

from __future__ import annotations

from dataclasses import replace

import head_case
import pytest
import torch
from transformers import CohereConfig, Gemma2Config, GraniteConfig, LlamaConfig, MptConfig

from kltune.trainer import head as module
from kltune.trainer.head import Head
from kltune.trainer.logit_rule import PLAIN, LogitRule, own_rule

LOGITS = 3 * torch.randn(4, 9, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("config", "theirs", "wanted"),
    [
        (LlamaConfig(), LOGITS, PLAIN),
        (Gemma2Config(final_logit_softcapping=2.0), 2 * (LOGITS / 2).tanh(), LogitRule(cap=2.0)),
        (Gemma2Config(final_logit_softcapping=None), LOGITS, PLAIN),
        (GraniteConfig(logits_scaling=8.0), LOGITS / 8, LogitRule(scale=0.125)),
        (CohereConfig(logit_scale=0.0625), LOGITS * 0.0625, LogitRule(scale=0.0625)),
        # transformers' MPT has the field and does not use it
        (MptConfig(logit_scale=0.5), LOGITS, PLAIN),
    ],
)
def test_the_rule_is_the_one_that_gives_the_models_own_logits(
    config: object, theirs: torch.Tensor, wanted: LogitRule
) -> None:
    rule, gap = own_rule(config, LOGITS, theirs)
    assert rule == wanted
    assert gap <= 1e-6


def test_what_no_rule_explains_leaves_a_gap() -> None:
    assert own_rule(Gemma2Config(final_logit_softcapping=2.0), LOGITS, LOGITS * 1.5)[1] > 0.1
    assert own_rule(LlamaConfig(), LOGITS, LOGITS * torch.nan)[1] == float("inf")


def test_a_plain_rule_hands_the_logits_through() -> None:
    assert PLAIN.is_plain
    assert PLAIN.apply(LOGITS) is LOGITS
    assert not LogitRule(scale=0.5).is_plain
    assert not LogitRule(cap=30.0).is_plain


def test_pulling_back_is_autograds_gradient() -> None:
    rule = LogitRule(scale=0.7, cap=2.0)
    logits = LOGITS.double().requires_grad_(True)
    capped = 2.0 * (0.7 * logits / 2.0).tanh()
    weights = torch.arange(9).double()
    (wanted,) = torch.autograd.grad((capped * weights).sum(), logits)
    torch.testing.assert_close(rule.apply(logits.detach()), capped.detach())
    torch.testing.assert_close(rule.pull(weights.expand(4, 9), capped.detach()), wanted)


@pytest.mark.parametrize(("elements", "fewest"), head_case.CHUNKS)
@pytest.mark.parametrize("rule", [LogitRule(cap=1.5), LogitRule(scale=0.25), LogitRule(0.5, 3.0)])
def test_the_chunked_head_is_the_plain_formula_with_the_rule(
    monkeypatch: pytest.MonkeyPatch, rule: LogitRule, elements: int, fewest: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", elements)
    monkeypatch.setattr(module, "MIN_TOKENS", fewest)
    case = head_case.case()
    ruled = replace(
        case,
        policy_head=replace(case.policy_head, rule=rule),
        ref_head=replace(case.ref_head, rule=rule),
    )
    got = ruled.columns()

    def plain(hidden: torch.Tensor, head: Head) -> torch.Tensor:
        raw = hidden @ head.weight.T + (0.0 if head.bias is None else head.bias)
        capped = raw * rule.scale
        if rule.cap is not None:
            capped = rule.cap * (capped / rule.cap).tanh()
        return (capped / head_case.ALL.temperature).log_softmax(-1)

    log_p = plain(case.policy_MD, case.policy_head)
    log_q = plain(case.ref_MD, case.ref_head).detach()
    p, q, u = log_p.exp(), log_q.exp(), log_p - log_q
    policy_M = log_p.gather(1, case.targets_M[:, None])[:, 0]
    columns = {
        "policy_M": policy_M, "exact_M": (p * u).sum(-1), "forward_M": -(q * u).sum(-1),
        "entropy_M": -(p * log_p).sum(-1),
    }  # fmt: skip
    weights = torch.linspace(-1, 1, len(policy_M), dtype=torch.float64)
    for name, wanted in columns.items():
        ours = getattr(got, name)
        torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-9)
        grads = torch.autograd.grad((wanted * weights).sum(), case.leaves(), retain_graph=True)
        found = torch.autograd.grad((ours * weights).sum(), ruled.leaves(), retain_graph=True)
        for a, b in zip(found, grads, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
