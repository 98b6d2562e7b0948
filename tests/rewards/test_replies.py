"""A judge's words are read as meant, or not at all."""

from __future__ import annotations

import pytest

from kltune.rewards.replies import comparison, rating, read_score, read_winner, reminder
from kltune.spec.judge import JudgeSpec

SPEC = JudgeSpec(judge="m", url="http://localhost/v1")


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("Score: 7", 7),
        ("It is fine.\n\n**Score:** 7.5/10", 7.5),
        ("Score: 3 at first, but then\nScore: 8", 8),
        ("score = [[9]]", 9),
        ("7", 7),
        ("7/10", 7),
        ("I'd say 6 out of 10.", 6),
        ("<think>Score: 2? 3?</think>\nScore: 9", 9),
        ("3 mistakes, so 5", None),
        ("Score: 11", None),
        ("Score: -1", None),
        ("very good", None),
        ("", None),
        ("gpt4 says so", None),
        ("10/10", 10),
    ],
)
def test_a_score_is_the_last_one_named_or_the_only_number(reply: str, score: float | None) -> None:
    assert read_score(reply, (1, 10)) == score


@pytest.mark.parametrize(
    ("reply", "winner"),
    [
        ("Both are fine.\nVerdict: A", "A"),
        ("**Verdict: B**", "B"),
        ("verdict: Tie", "tie"),
        ("B", "B"),
        ("[[A]]", "A"),
        ("<think>Verdict: A</think> Verdict: B", "B"),
        ("A is better", None),
        ("Verdict: neither", None),
        ("", None),
    ],
)
def test_a_winner_is_named_or_it_is_none(reply: str, winner: str | None) -> None:
    assert read_winner(reply) == winner


def test_braces_in_a_completion_stay_as_they_are() -> None:
    (message,) = rating(SPEC, "p {x}", "c {y} {0}", {"food": "{z}"})
    assert "p {x}" in message["content"]
    assert "c {y} {0}" in message["content"]
    assert message["content"].endswith("a number from 1 to 10.")


def test_the_users_question_and_system_message_are_used() -> None:
    spec = SPEC.model_copy(update={"ask": "{food}? {completion}", "system": "be strict"})
    system, asked = rating(spec, "p", "c", {"food": "soup"})
    assert system == {"role": "system", "content": "be strict"}
    assert asked["content"].startswith("soup? c")


def test_a_comparison_shows_both_answers_in_order() -> None:
    (message,) = comparison(SPEC, "p", "first", "second")
    text = message["content"]
    assert 0 < text.index("Answer A:\n-----\nfirst") < text.index("Answer B:\n-----\nsecond")


def test_a_reminder_goes_on_with_the_same_talk() -> None:
    first = rating(SPEC, "p", "c", {})
    again = reminder(first, "hm")
    assert [m["role"] for m in again] == ["user", "assistant", "user"]
    assert again[:1] == first
