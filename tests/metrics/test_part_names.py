from __future__ import annotations

import pytest

from kltune.metrics.names import METRICS, check_names
from kltune.metrics.part_names import FAMILY, is_part_metric, part_metric


def test_the_metric_of_a_part_is_recognised_and_may_be_recorded() -> None:
    assert part_metric("short") == "train/part_short"
    check_names([part_metric("short"), "train/score_errors"])
    assert not is_part_metric("train/part_")
    assert not is_part_metric("train/proxy_mean")
    with pytest.raises(ValueError, match="train/part_A b"):
        check_names(["train/part_A b"])


def test_the_family_is_written_as_the_metric_is_named() -> None:
    assert [name.replace("<name>", "x") for name, _, _ in FAMILY] == [part_metric("x")]
    assert not any(is_part_metric(name) for name in METRICS)
