from __future__ import annotations

import pytest

from kltune.metrics.names import METRICS, check_names, trl_names


def test_every_metric_has_a_unit_and_a_meaning_of_its_own() -> None:
    assert all(metric.unit and metric.meaning for metric in METRICS.values())
    assert all(metric.name == name for name, metric in METRICS.items())


def test_an_unregistered_name_is_refused() -> None:
    check_names(["kl/exact_token", "eval/gold"])
    with pytest.raises(ValueError, match="unregistered metric 'kl/token'"):
        check_names(["kl/exact_token", "kl/token"])


def test_a_kl_name_says_estimator_and_unit() -> None:
    for name in METRICS:
        what = name.partition("/")[2]
        is_distance = what.startswith(("k1", "k3", "kl_")) and not name.startswith("ctrl/")
        if what.endswith("_corr"):
            assert METRICS[name].unit == "1"
        elif name.startswith("kl/") or is_distance:
            assert name.removesuffix("_se").endswith(("_token", "_seq")), name


def test_the_unit_of_a_kl_follows_its_name() -> None:
    for name, metric in METRICS.items():
        if name.startswith("kl/") or name in ("eval/kl_token", "eval/kl_seq"):
            wanted = (
                "nats/token" if name.removesuffix("_se").endswith("_token") else "nats/sequence"
            )
            assert metric.unit == wanted, name


def test_seconds_end_in_s_and_shares_in_frac() -> None:
    for name, metric in METRICS.items():
        assert (metric.unit == "s") == name.endswith("_s"), name
        assert metric.unit.startswith("share of") == name.endswith("_frac"), name


def test_trl_names_mean_the_same_number() -> None:
    mirrored = trl_names({"kl/k3_token": 0.1, "kl/exact_token": 0.2, "train/proxy_mean": 3.0})
    assert mirrored == {"kl": 0.1, "reward": 3.0}


def test_no_two_metrics_share_a_trl_name() -> None:
    names = [metric.trl for metric in METRICS.values() if metric.trl]
    assert len(set(names)) == len(names)
    assert not set(names) & METRICS.keys()


def test_a_gold_of_the_spec_has_two_names_and_nothing_else() -> None:
    check_names(["eval/gold_retention", "eval/gold_retention_se", "eval/gold_a-b_c"])
    for name in (
        "eval/gold_",
        "eval/gold_Tone",
        "eval/gold_x_se_se",
        "eval/gold_gold",
        "eval/goldx",
    ):
        with pytest.raises(ValueError, match="unregistered metric"):
            check_names([name])
