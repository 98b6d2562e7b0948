from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from preview_case import forecast_of, hump, opposite, same, scored, unrelated

from kltune.preview.result import Interval, Needed
from kltune.preview.words import LIMIT_OF_FORECAST, headline, needed_words, sentences, span


@pytest.mark.parametrize(
    ("gold_of", "start"),
    [
        (hump, "Gold is highest at a KL of"),
        (same, "Gold rises with the proxy, clearly so from a KL of"),
        (opposite, "The proxy is useless here: gold falls as the proxy rises"),
        (unrelated, "On these prompts it can't be told whether gold rises or falls"),
    ],
)
def test_each_verdict_has_its_headline(gold_of, start: str) -> None:
    text = headline(forecast_of(scored(gold_of, samples=128)))
    assert text.startswith(start)
    assert "nats/sequence" in text
    assert "None" not in text


def test_what_rl_may_do_otherwise_is_always_said() -> None:
    for gold_of in (hump, same, opposite, unrelated):
        assert sentences(forecast_of(scored(gold_of)))[-1] == LIMIT_OF_FORECAST


def test_a_kl_of_best_of_n_is_at_most_and_an_open_end_is_named() -> None:
    found = forecast_of(scored(hump, samples=512))
    reading = replace(found.reading, kind="best-of-n", peak_kl_seq=Interval(0.6, 0.4, None))
    text = headline(replace(found, readings=(reading,)))
    assert "at most 0.6 nats/sequence (95 % interval 0.4 to beyond what was sampled" in text


def test_counts_out_of_reach_are_not_spelt_out() -> None:
    found = replace(
        forecast_of(scored(same)), needed=(Needed(2.0, 546.3, 20), Needed(9.0, 1e9, 22027))
    )
    near, far = needed_words(found)
    assert "about 550 completions per prompt" in near
    assert "more than a million completions per prompt" in far
    assert "22,027 for best-of-n" in far


def test_an_interval_has_a_minus_sign_and_open_ends() -> None:
    assert span(Interval(0.0, -0.5, None)) == "95 % interval −0.500 to open"


def test_a_proxy_that_knows_the_train_prompts_better_is_told() -> None:
    better = forecast_of(scored(unrelated), train=scored(same, seed=1))
    assert any("the proxy knows the train prompts better" in text for text in sentences(better))
    alike = forecast_of(scored(same), train=scored(same, seed=1))
    assert any(text.startswith("On 48 train prompts it is 1.00") for text in sentences(alike))
    assert not any("better" in text for text in sentences(alike))


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (
            "proxy_PN",
            "The proxy gives every completion of a prompt the same score: there is nothing to learn.",
        ),
        (
            "gold_PN",
            "Gold gives every completion of a prompt the same score: there is nothing to judge by.",
        ),
    ],
)
def test_a_scorer_that_never_varies_is_the_headline(which: str, words: str) -> None:
    data = scored(hump)
    change: dict[str, Any] = {which: np.ones_like(data.proxy_PN)}
    flat = replace(data, **change)
    found = forecast_of(flat, train=flat)
    assert headline(found) == words
    assert sentences(found) == (
        "The correlation of proxy and gold within a prompt is undefined: over the reference's completions one of them "
        "never varies.",
        "On 48 train prompts it is undefined.",
    )


def test_what_best_of_n_shows_already_has_no_count() -> None:
    found = replace(forecast_of(scored(same)), needed=(Needed(2.0, 546.3, None),))
    assert needed_words(found)[0].endswith("at each beta; best-of-n shows it already")
