from __future__ import annotations

import numpy as np
import pytest
from preview_case import same, scored

from kltune.preview.curves import (
    Scored,
    average,
    resamples,
    sizes,
    trace_best_of_n,
    trace_tilt,
)
from kltune.statistics.reweight import balance


def test_points_that_the_sample_can_not_carry_are_left_out() -> None:
    few = trace_tilt(scored(same, samples=16))
    many = trace_tilt(scored(same, samples=256))
    assert few.cut_knob is not None
    assert few.kl_GP.mean(axis=1)[-1] < 0.3
    assert many.kl_GP.mean(axis=1)[-1] > 1.2
    assert all(effective is not None and effective >= 10 for effective in few.effective_G)


def test_kl_and_proxy_rise_along_both_curves() -> None:
    data = scored(same)
    for trace in (trace_tilt, trace_best_of_n):
        curve = average(trace(data), resamples(48, 0))
        kls = [point.kl_seq for point in curve.points]
        proxies = [point.proxy.value for point in curve.points]
        assert kls[0] == 0
        assert kls == sorted(kls)
        assert proxies == sorted(proxies)
        assert [p.kl_token for p in curve.points] == pytest.approx([kl / 10 for kl in kls])


def test_intervals_hold_the_value_and_narrow_with_prompts() -> None:
    def width(prompts: int) -> float:
        point = average(
            trace_best_of_n(scored(same, prompts=prompts)), resamples(prompts, 0)
        ).points[3]
        assert point.gold.low is not None
        assert point.gold.high is not None
        assert point.gold.low < point.gold.value < point.gold.high
        return point.gold.high - point.gold.low

    assert width(256) < 0.7 * width(32)


def test_sizes_end_with_the_whole_sample() -> None:
    assert sizes(2) == (1, 2)
    assert sizes(16) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert sizes(10) == (1, 2, 3, 4, 6, 8, 10)


def test_best_of_n_uses_the_reference_alone() -> None:
    data = scored(same, samples=32)
    more = np.concatenate([data.proxy_PN, data.proxy_PN + 100], axis=1)
    both = Scored(more, more, np.full(more.shape, 10.0), 32)
    np.testing.assert_allclose(trace_best_of_n(both).proxy_GP, trace_best_of_n(data).proxy_GP)


def test_completions_of_a_trained_policy_carry_the_tilt_further() -> None:
    generator = np.random.default_rng(0)
    reference, shifted = generator.normal(size=(48, 64)), generator.normal(2.0, 1.0, size=(48, 64))
    proxy = np.concatenate([reference, shifted], axis=1)
    # log N(y; 2, 1) / N(y; 0, 1) = 2 y - 2
    log_ratio = np.stack([np.zeros_like(proxy), 2 * proxy - 2])
    tokens = np.full(proxy.shape, 10.0)
    density = balance(log_ratio, np.array([64, 64]))
    alone = trace_tilt(Scored(reference, reference, tokens[:, :64], 64))
    mixed = trace_tilt(Scored(proxy, proxy, tokens, 64, density))
    assert alone.kl_GP.mean(axis=1)[-1] < 0.9
    reach = mixed.kl_GP.mean(axis=1)[-1]
    true = 1 / (2 * mixed.knob_G[-1] ** 2)
    assert reach > 1.5
    assert reach == pytest.approx(true, rel=0.08)
