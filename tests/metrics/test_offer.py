from __future__ import annotations

from pathlib import Path

import pytest

from kltune.metrics.offer import Offer
from kltune.metrics.outage import TrackerLoss, TrackerOutage, TrackerRefusal


def raises(error: Exception) -> None:
    raise error


def test_a_refusal_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offer = Offer(tmp_path)
    for _ in range(2):
        offer.of("params", raises, TrackerRefusal("too long"))
        offer.refused(tmp_path, ["train/loss"])
    assert caplog.text.count("MLflow refused params (too long)") == 1
    assert caplog.text.count("refused values of train/loss") == 1


def test_an_outage_and_a_loss_are_passed_on(tmp_path: Path) -> None:
    for error in (TrackerOutage("away"), TrackerLoss("gone")):
        with pytest.raises(type(error)):
            Offer(tmp_path).of("params", raises, error)


def test_files_may_be_late_while_all_else_goes_on(tmp_path: Path) -> None:
    offer = Offer(tmp_path)
    assert not offer.file(raises, TrackerOutage("the bucket is away"))
    assert offer.late == "the bucket is away"
    assert Offer(tmp_path).file(raises, TrackerRefusal("no files here"))


def test_nothing_is_given_up_while_the_experiment_is_in_the_trash(tmp_path: Path) -> None:
    offer = Offer(tmp_path, lambda: True)
    with pytest.raises(TrackerOutage, match="experiment was deleted; restore it"):
        offer.of("params", raises, TrackerRefusal("not active"))
    with pytest.raises(TrackerOutage, match="experiment was deleted"):
        offer.refused(tmp_path, ["train/loss"])
    offer.refused(tmp_path, [])
