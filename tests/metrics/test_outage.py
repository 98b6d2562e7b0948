from __future__ import annotations

from kltune.metrics.outage import TrackerLoss, TrackerOutage, TrackerRefusal


def test_a_loss_is_a_refusal_and_an_outage_is_none() -> None:
    assert issubclass(TrackerLoss, TrackerRefusal)
    assert not issubclass(TrackerOutage, TrackerRefusal)
