from __future__ import annotations

import math
import sys

import pytest

from kltune.errors import EnvironmentMissingError
from kltune.tasks.everyday.gold import (
    END_BONUS,
    HIGHEST,
    LOWEST,
    MAX_WORDS,
    MIN_WORDS,
    ZERO_WORDS,
    everyday_gold,
    gold_of,
    length_credit,
    open_analyzer,
    repeated_share,
    require_vader,
    words_of,
)

# VADER's lexicon gives "good" 1.9 and "bad" -2.5; compound = s / sqrt(s^2 + 15).
GOOD = 1.9 / math.sqrt(1.9**2 + 15)
BAD = -2.5 / math.sqrt(2.5**2 + 15)
TWELVE = "The tall man put the red box on a table in there"


def gold(text: str) -> float:
    (score,) = everyday_gold(["q"], [text])
    return score


def test_a_good_answer_of_fitting_length_earns_its_tone_and_the_ending() -> None:
    text = TWELVE.replace("tall", "good")
    assert len(words_of(text)) == MIN_WORDS
    # VADER rounds its compound to four digits
    assert gold(f"{text}.") == pytest.approx(GOOD + END_BONUS, abs=5e-5)
    assert gold(text) == pytest.approx(GOOD, abs=5e-5)


def test_half_the_words_earn_half() -> None:
    assert gold("It is a good red box.") == pytest.approx((GOOD + END_BONUS) / 2, abs=5e-5)


def test_a_bad_tone_is_not_softened_by_saying_little() -> None:
    assert gold("bad") == pytest.approx(BAD, abs=5e-5)
    assert gold(TWELVE.replace("tall", "bad")) == pytest.approx(BAD, abs=5e-5)


@pytest.mark.parametrize("text", ["", "   \n", ".", "...!"])
def test_no_words_are_worth_nothing(text: str) -> None:
    assert gold(text) == 0.0


def test_the_length_band_rises_holds_and_falls() -> None:
    middle = (MAX_WORDS + ZERO_WORDS) // 2
    assert [length_credit(n) for n in (0, MIN_WORDS // 2, MIN_WORDS, MAX_WORDS)] == [0, 0.5, 1, 1]
    assert length_credit(middle) == pytest.approx((ZERO_WORDS - middle) / (ZERO_WORDS - MAX_WORDS))
    assert [length_credit(n) for n in (ZERO_WORDS, 10 * ZERO_WORDS)] == [0, 0]


def test_repeats_are_counted_in_trigrams_and_sentences() -> None:
    assert repeated_share(TWELVE) == 0.0
    # a b c, b c a, c a b, a b c: one of four said before
    assert repeated_share("a b c a b c") == pytest.approx(0.25)
    # two of three sentences are repeats, whatever their case and stops
    assert repeated_share("Be kind. be kind! BE KIND?") == pytest.approx(2 / 3)
    assert repeated_share("1. Be kind\n2. Be calm") == 0.0


def test_repetition_costs_its_share() -> None:
    assert gold_of("good day to you good day to you", 0.0) == pytest.approx(-2 / 6)


def test_an_ending_counts_behind_quotes_and_brackets_only_with_a_stop() -> None:
    for end in (".", "!", "?", '."', ".)", "!\u201d\n"):
        assert gold_of(TWELVE + end, 0.0) == END_BONUS
    for end in ("", ",", ":", ", and"):
        assert gold_of(TWELVE + end, 0.0) == 0.0


@pytest.mark.parametrize(
    "text", ["good " * 200, "bad bad bad. " * 50, "great! " * 3, TWELVE, "ありがとう。", "🙂" * 30]
)
def test_gold_is_bounded_and_the_same_each_time(text: str) -> None:
    assert LOWEST <= gold(text) <= HIGHEST
    assert gold(text) == gold(text)


def test_a_warm_whole_answer_beats_the_cheap_ways() -> None:
    warm = (
        "What a lovely idea! Cook a simple pasta with fresh tomatoes, open the windows, and enjoy "
        "a happy evening with your friends."
    )
    cheap = ["good", "Great!", "love " * 30, "I love it. " * 8, "I love this great happy day and"]
    assert gold(warm) > max(gold(text) for text in cheap)


def test_each_completion_is_judged_on_its_own() -> None:
    texts = ["good", TWELVE, "bad."]
    assert everyday_gold(["a", "b", "c"], texts, topic=["x", "y", "z"]) == [gold(t) for t in texts]


def test_a_missing_vader_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vaderSentiment", None)
    monkeypatch.delitem(sys.modules, "vaderSentiment.vaderSentiment", raising=False)
    for call in (require_vader, open_analyzer):
        with pytest.raises(EnvironmentMissingError, match=r"kltune\[smollm2\]"):
            call()
