from __future__ import annotations

import io
from typing import Any

import pytest

from kltune.explain import page
from kltune.explain.frameworks import FRAMEWORKS
from kltune.explain.units import UnitsQuestion, explain_units
from kltune.explain.units_screen import units_screen


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(**changes: Any) -> str:
    stream = io.StringIO()
    page.show(units_screen(explain_units(UnitsQuestion(**changes))), stream)
    return stream.getvalue()


def words(**changes: Any) -> str:
    return " ".join(shown(**changes).split())


def test_both_units_of_a_kl_stand_beside_each_other() -> None:
    # Field case E2.
    assert "0.05 nats/token = 2 nats/sequence, at 40 tokens" in words()
    assert "0.15 nats/token = 6 nats/sequence, at 40 tokens" in words(kl_seq=6)


def test_a_drowned_reward_is_told_with_the_ratio() -> None:
    # Field case E3.
    text = words(sigma_r=1e-4, penalty=0.5)
    assert "mean penalty 0.5 / reward spread 0.0001 = 5,000: the penalty DROWNS the reward" in text
    assert "HARDLY FELT" in words(beta=1e-5)
    assert "both are felt" in words()


def test_the_horizon_is_converted() -> None:
    assert "640 at n = 64 is 81,920 at n = 8,192" in words()


def test_every_framework_is_listed_uncut() -> None:
    text = shown()
    assert "…" not in text
    for row in FRAMEWORKS.values():
        assert row.key in text
        assert row.metric in text


def test_a_penalty_below_0_is_told_with_its_sign() -> None:
    assert "mean penalty -0.02 / reward spread 0.5 = -0.04: BELOW 0" in words(kl_seq=-1)
    assert "mean penalty -3 / reward spread 0.5 = -6: BELOW 0" in words(penalty=-3)


def test_a_narrow_terminal_cuts_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = shown()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 40
    for row in FRAMEWORKS.values():
        assert f"--from {row.key}" in text.splitlines()
        assert row.metric in text
