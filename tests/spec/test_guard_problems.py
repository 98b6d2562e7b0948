"""What guards and an objective can't do together."""

from __future__ import annotations

from kltune.spec.guard_problems import guard_problems
from kltune.spec.guards import GuardsSpec


def fields(guards: dict[str, object], metric: str = "gold_peak", limit: float | None = None) -> list[str]:  # fmt: skip
    return [f for f, _ in guard_problems(GuardsSpec.model_validate(guards), metric, limit)]


def test_a_drop_stops_no_trial_whose_end_counts() -> None:
    assert fields({"gold_drop": "stop"}, "gold_final") == ["guards.gold_drop.action"]
    assert fields({"gold_drop": "warn"}, "gold_final") == []
    assert fields({"gold_drop": "stop"}, "gold_mean") == []


def test_a_kl_guard_needs_a_limit_unless_it_is_off() -> None:
    assert fields({"kl": {"patience": 2}}) == ["guards.kl.limit"]
    assert fields({"kl": {"patience": 2}}, limit=0.5) == []
    assert fields({"kl": "off"}) == []
