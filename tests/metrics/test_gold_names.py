from __future__ import annotations

from kltune.metrics.gold_names import FAMILY, gold_metric, is_gold_metric
from kltune.metrics.names import METRICS


def test_a_golds_metrics_are_its_own_and_never_the_registrys() -> None:
    for name in ("retention", "a", "tone-2", "long_name"):
        for metric in (gold_metric(name), f"{gold_metric(name)}_se"):
            assert is_gold_metric(metric)
            assert metric not in METRICS
    assert not any(is_gold_metric(name) for name in METRICS)


def test_the_family_is_described_like_the_registry() -> None:
    assert [name.replace("<name>", "x") for name, _, _ in FAMILY] == [
        "eval/gold_x",
        "eval/gold_x_se",
    ]
    assert all(unit and meaning for _, unit, meaning in FAMILY)
