from __future__ import annotations

import json

import fake_audit
import pytest

from kltune.audit.result import FORWARD, Norms
from kltune.audit.statistics import Estimate
from kltune.metrics.jsonl import encode
from kltune.metrics.names import METRICS


def test_json_is_strict_and_holds_everything() -> None:
    result = fake_audit.result()
    found = json.loads(encode(result.as_json()), parse_constant=pytest.fail)
    assert found["schema"] == 1
    assert found["pair"]["policy"] == result.pair.policy
    assert found["kl"]["token_nats"] == {"value": 0.456, "se": 0.01}
    assert [row["penalty"] for row in found["penalties"]] == [r.penalty for r in result.penalties]
    by_name = {row["penalty"]: row for row in found["penalties"]}
    assert by_name["k1-loss"]["sequence_full"]["cosine"] is None
    assert by_name["k1-loss"]["verdict"] == "noise"
    assert by_name["k2-loss"]["words"].startswith("token-local")
    assert {row["metric"] for row in found["frameworks"]} >= {"kl", "actor/kl_loss", "objective/kl"}
    assert [row["name"] for row in found["estimators"]] == ["exact", "k1", "k2", "k3", "abs"]


def test_ratio_and_balance_of_the_two_gradients() -> None:
    norms = Norms("grpo", Estimate(2.0, 0.1), Estimate(0.5, 0.1), None, "a recipe", 0.1, 0.8)
    assert (norms.ratio, norms.balance) == (pytest.approx(0.2), pytest.approx(4.0))


def test_the_other_direction_says_at_whose_prefixes_it_is() -> None:
    forward = fake_audit.result().as_json()["kl"]["forward_token_nats"]  # type: ignore[index]
    assert (forward["value"], forward["se"]) == (0.5, 0.02)
    assert forward["definition"] == FORWARD
    assert "at the policy's own prefixes" in FORWARD
    assert "kl/forward_token" in METRICS
