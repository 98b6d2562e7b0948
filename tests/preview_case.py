"""Completions whose truth is known: gold as a function of the proxy and of noise, for the tests of the preview."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kltune.preview.curves import Floats, Scored
from kltune.preview.forecast import forecast
from kltune.preview.result import Forecast, Subject
from kltune.preview.suggest import Search


def scored(
    gold_of: Callable[[Floats, np.random.Generator], Floats],
    prompts: int = 48,
    samples: int = 64,
    seed: int = 0,
) -> Scored:
    generator = np.random.default_rng(seed)
    proxy = generator.normal(size=(prompts, samples)) + generator.normal(size=(prompts, 1))
    tokens = np.full(proxy.shape, 10.0)
    return Scored(proxy, gold_of(proxy, generator), tokens, samples)


def same(proxy: Floats, generator: np.random.Generator) -> Floats:
    return proxy


def opposite(proxy: Floats, generator: np.random.Generator) -> Floats:
    return -proxy


def unrelated(proxy: Floats, generator: np.random.Generator) -> Floats:
    return generator.normal(size=proxy.shape)


def hump(proxy: Floats, generator: np.random.Generator) -> Floats:
    """Highest where the proxy is one above its prompt's mean: expected gold of a normal tilted by s is
    2 s - (1 + s²), so gold peaks at s = 1, where the KL is s² / 2 = 0.5 nats."""
    centred = proxy - proxy.mean(axis=1, keepdims=True)
    return 2 * centred - centred**2 + generator.normal(scale=0.3, size=proxy.shape)


def subject(prompts: int = 48, samples: int = 64) -> Subject:
    return Subject(
        name="toy",
        model="builtin:kitchen",
        split="select",
        num_prompts=prompts,
        num_samples=samples,
        seed=0,
        temperature=1.0,
        max_new_tokens=12,
        mean_tokens=10.0,
        tied_share=0.0,
        kl_unit="token",
        beta_unit="reward",
    )


def forecast_of(
    data: Scored,
    kl_limit: float | None = None,
    kl_unit: str = "token",
    train: Scored | None = None,
    search: Search | None = None,
) -> Forecast:
    about = subject(*data.of_reference().proxy_PN.shape)
    return forecast(data, about, search or Search(kl_unit, kl_limit), train)
