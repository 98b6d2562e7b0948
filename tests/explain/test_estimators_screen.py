from __future__ import annotations

import io

import pytest

from kltune.explain import page
from kltune.explain.distribution import EXAMPLE, Pair
from kltune.explain.estimators import explain_estimators
from kltune.explain.estimators_screen import estimators_screen
from kltune.spec.penalty import Penalty


def shown(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    page.show(estimators_screen(explain_estimators(pair), is_example=pair.is_example), stream)
    return stream.getvalue().splitlines()


def test_every_penalty_has_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(EXAMPLE, monkeypatch)
    rows = {line.split()[0]: line for line in lines if line and line.split()[0] in set(Penalty)}
    assert set(rows) == set(Penalty)
    assert rows["k2-loss"].split()[1:4] == ["1.000", "1.000", "right:"]
    assert rows["k1-loss"].split()[1:4] == ["–", "0.000", "refused:"]


def test_k3_in_the_reward_is_shown_turning_round(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "give cosine -1.000" in " ".join(shown(EXAMPLE, monkeypatch))


def test_an_infinite_kl_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(shown(Pair((0.5, 0.5), (1.0, 0.0)), monkeypatch))
    assert "The KL is infinite" in text
    assert "k2-loss" not in text


def test_the_bias_of_k3_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "k3 is unbiased only where the policy can give every answer of the reference"
    text = " ".join(" ".join(shown(Pair((1.0, 0.0), (0.5, 0.5)), monkeypatch)).split())
    assert told in text
    assert "0.5 of it are lost" in text
    assert told not in " ".join(" ".join(shown(EXAMPLE, monkeypatch)).split())
