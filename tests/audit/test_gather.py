from __future__ import annotations

import math

import numpy as np
import pytest
from fake_audit import KL, POLICY_P, RATIO, FakeBlock, question

from kltune.audit.gather import POLICY, gather
from kltune.audit.verdict import Kind


def sampled(count: int = 40, size: int = 64) -> list[FakeBlock]:
    draw = np.random.default_rng(0)
    return [
        FakeBlock(
            draw.choice(4, size=size, p=POLICY_P), np.arange(size) // 4 + 100 * i, width=1 + i % 2
        )
        for i in range(count)
    ]


def test_enumerated_blocks_give_the_toy_table_exactly() -> None:
    half = POLICY_P / 2  # two prompts with the same four answers
    blocks = [FakeBlock(np.arange(4), np.full(4, i), half) for i in range(2)]
    result = gather(blocks, question(2, is_enumerated=True))
    found = {row.penalty.value: row for row in result.penalties}
    for name, cosine, ratio in (
        ("k1-reward", 1.0, 1.0),
        ("k2-loss", 1.0, 1.0),
        ("k3-loss", 0.908, 0.99),
        ("k3-reward", 0.227, 0.43),
    ):
        full = found[name].full
        assert full.cosine is not None
        assert full.ratio is not None
        assert full.cosine.value == pytest.approx(cosine, abs=5e-4), name
        assert full.ratio.value == pytest.approx(ratio, abs=5e-3), name
        assert full.cosine.se == 0
    assert found["k1-loss"].verdict.kind is Kind.NOISE
    assert result.divergences.kl_token.value == pytest.approx(KL)
    assert result.divergences.kl_token.se == 0
    assert result.pair.num_prompts == 2
    by_name = {row.name: row for row in result.estimators}
    assert by_name["k1"].mean_token == pytest.approx(KL)  # unweighted it would be 0
    assert by_name["k2"].mean_token == pytest.approx(0.521554, abs=1e-6)
    norms = result.norms
    assert norms.kl is not None
    assert norms.kl.value == pytest.approx(float(np.linalg.norm(POLICY_P * (RATIO - KL))))


def test_sampled_blocks_agree_with_the_enumerated_truth_within_their_errors() -> None:
    result = gather(sampled(), question(40))
    found = {row.penalty.value: row for row in result.penalties}
    for name, cosine, ratio in (
        ("k1-reward", 1.0, 1.0),
        ("k3-loss", 0.908, 0.99),
        ("k3-reward", 0.227, 0.43),
    ):
        full = found[name].full
        assert full.cosine is not None
        assert full.ratio is not None
        assert abs(full.cosine.value - cosine) < 3 * full.cosine.se + 1e-3, name
        assert abs(full.ratio.value - ratio) < 3 * full.ratio.se + 5e-3, name
    assert found["k1-loss"].verdict.kind is Kind.NOISE
    assert found["k2-loss"].verdict.kind is Kind.LOCAL
    assert found["k1-reward"].verdict.kind is Kind.FULL


def test_padding_of_any_width_and_content_counts_for_nothing() -> None:
    result = gather(sampled(), question(40))
    assert result.divergences.kl_token.value == pytest.approx(KL)
    assert result.divergences.kl_seq.value == pytest.approx(KL)
    assert result.pair.mean_tokens == pytest.approx(1.0)
    assert all(math.isfinite(log.logged.value) for log in result.frameworks)


def test_blocks_are_heard_of_and_counted() -> None:
    heard: list[int] = []
    result = gather(sampled(5, 8), question(5, notes=("mind",)), heard.append)
    assert heard == [1, 2, 3, 4, 5]
    assert (result.pair.num_completions, result.pair.num_parameters) == (40, 4)
    assert result.notes == ("mind",)
    assert result.seconds > 0


def test_without_a_reward_there_is_no_policy_gradient() -> None:
    class Unscored(FakeBlock):
        @property
        def gradients(self) -> dict[str, np.ndarray]:
            return {k: v for k, v in super().gradients.items() if k != POLICY}

    blocks = [Unscored(b.tokens, b.prompt_N) for b in sampled(5)]
    assert gather(blocks, question(5)).norms.policy is None
