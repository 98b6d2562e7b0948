from __future__ import annotations

import io

import pytest
from rich.console import RenderableType

from kltune.explain import page
from kltune.explain.distribution import EXAMPLE, Pair
from kltune.explain.kl import explain_kl
from kltune.explain.kl_screens import kl_screen, mean_screen
from kltune.explain.mean import MeanQuestion, explain_mean


def shown(screen: RenderableType) -> str:
    stream = io.StringIO()
    page.show(screen, stream)
    return stream.getvalue()


def read(mean: float, **how: float) -> str:
    return " ".join(shown(mean_screen(explain_mean(MeanQuestion(mean, **how)))).split())  # pyright: ignore[reportArgumentType]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_the_numbers_of_the_issue_are_on_the_screen() -> None:
    text = shown(kl_screen(explain_kl(EXAMPLE), is_example=True))
    for number in ("0.0470 nats", "0.0423 nats", "0.0679 bits", "= 64 answers", "7.4 ×", "0.2336"):
        assert number in text
    assert "0.395 → 0.295" in text


def test_an_infinite_kl_is_said_and_says_why() -> None:
    text = shown(kl_screen(explain_kl(Pair((0.5, 0.5), (1.0, 0.0))), is_example=False))
    assert "infinite: the policy gives B, the reference never does (probability 0)." in text


def test_a_lost_answer_is_named() -> None:
    text = shown(kl_screen(explain_kl(Pair((1.0, 0.0), (0.5, 0.5))), is_example=False))
    assert "The policy lost B" in text
    assert "∞" in text


def test_a_long_distribution_shows_what_counts() -> None:
    many = Pair((*[0.01] * 99, 0.01), (*[0.0099] * 99, 0.0199))
    lines = shown(kl_screen(explain_kl(many), is_example=False)).splitlines()
    assert any(line.startswith("#100 ") for line in lines)
    assert any(line.startswith("and 94 more") for line in lines)
    assert len(lines) <= 40


def test_minus_07_is_called_noise_and_minus_5_with_top_k_settings() -> None:
    # Field case E1.
    assert "verdict NOISE of a signed estimator" in read(-0.07)
    assert "verdict SETTINGS: not a KL." in read(-5, top_k=50)
    assert "top-k 50: the answers come from another distribution" in read(-5, top_k=50)


def test_noise_is_told_with_its_assumption_and_its_error_bar() -> None:
    text = read(-0.07)
    assert "exp(-16 × 0.07) = 33 %" in text
    assert "standard error sqrt(2 × 0.07 / 16) = 0.0935 nats" in text
    assert "up to 65 answers" in text


def test_what_top_p_can_and_cannot_explain() -> None:
    assert "it CANNOT explain this one alone" in read(-5, top_p=0.9)
    assert "it can explain this one alone" in read(-4, top_p=0.9)


def test_other_readings() -> None:
    assert "ZERO: right at step 0" in read(0)
    assert "ORDINARY: about 10 answers" in read(0.3)
    assert "DIVERGED, or another unit" in read(50)
    assert "not even as the mean of a single answer" in read(-9)


def test_k3_stands_beside_its_own_expectation() -> None:
    told = "k3 is unbiased only where the policy can give every answer of the reference"
    text = shown(kl_screen(explain_kl(Pair((1.0, 0.0), (0.5, 0.5))), is_example=False))
    exact = next(line for line in text.splitlines() if line.startswith("exact"))
    assert exact.split() == ["exact", "0.6931", "0.1931"]
    assert told in " ".join(text.split())
    text = shown(kl_screen(explain_kl(EXAMPLE), is_example=True))
    exact = next(line for line in text.splitlines() if line.startswith("exact"))
    assert exact.split() == ["exact", "0.0470", "0.0470"]
    assert told not in " ".join(text.split())
