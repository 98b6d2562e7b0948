from __future__ import annotations

import io
from typing import Any

import pytest

from kltune.explain import page
from kltune.explain.controller import ControllerQuestion, explain_controller
from kltune.explain.controller_screen import controller_screen


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(**changes: Any) -> list[str]:
    question = ControllerQuestion(**changes)
    stream = io.StringIO()
    page.show(controller_screen(explain_controller(question), question), stream)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"steps": 40}, "INERT: it can raise beta by 5.2 % at most in 40 steps"),
        ({"horizon": 640}, "LIVE: beta can move by 10 % and more"),
        ({"horizon": 20}, "FAST: n / horizon is 3.2."),
        ({"beta": 0.0}, "STUCK: beta 0 times anything is 0."),
        ({"horizon": 1, "kl": 0}, "BROKEN: at horizon 12.8 (0.2 × n) and below, a step at KL 0"),
    ],
)
def test_the_verdict_comes_first(changes: dict[str, Any], told: str) -> None:
    assert told in " ".join(" ".join(shown(**changes)).split())


def test_formula_step_and_run_are_there() -> None:
    lines = shown()
    text = " ".join(" ".join(lines).split())
    assert "beta ← beta × (1 + error × n / horizon)" in lines[1]
    assert "n / horizon = 64 / 10,000 = 0.0064. beta 0.1 × 1.00128 = 0.100128" in text
    assert "Doubling takes about 542 steps" in text
    assert [line.split()[0] for line in lines if line.endswith("yours")] == ["10,000"]


def test_no_name_of_a_rule_is_cut() -> None:
    text = "\n".join(shown())
    assert "…" not in text
    assert "threshold-ppo2017" in text
    assert "threshold-1.2x0.8" in text


def test_a_broken_horizon_gets_no_nonsense_numbers() -> None:
    text = " ".join(" ".join(shown(horizon=1, kl=0)).split())
    for nonsense in ("e+90", "e+91", "-1.18", "-11.8", "FAST", "beta stays between", "Doubling"):
        assert nonsense not in text


def test_beta_0_is_stuck_and_nothing_doubles() -> None:
    text = " ".join(" ".join(shown(beta=0.0)).split())
    assert "beta stays 0" in text
    assert "Doubling" not in text
    assert "for a beta above 0" in text
