from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kltune.metrics.connection import Connection
from kltune.metrics.outage import TrackerOutage
from kltune.metrics.tracker import resolve_tracker

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


def test_a_server_that_is_away_is_an_outage_and_can_be_tried_again(
    bench: Any, server: Any, tmp_path: Path
) -> None:
    study = bench.study(tmp_path / "kitchen")
    connection = Connection(study, resolve_tracker(study, server.uri, {}), "kitchen", [])
    server.is_down = True
    with pytest.raises(TrackerOutage):
        connection.open()
    assert connection.runs is None
    server.is_down = False
    first = connection.open()
    assert connection.runs is first
    parent_id = first.parent_id
    connection.lose()
    assert connection.runs is None
    second = connection.open()
    assert second.parent_id == parent_id
    connection.lose()


def test_a_damaged_database_makes_way_for_a_new_one(
    bench: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = bench.study(tmp_path / "kitchen")
    (study / "mlflow.db").write_bytes(b"no database at all" * 100)
    connection = Connection(study, resolve_tracker(study, None, {}), "kitchen", [])
    runs = connection.open()
    runs.close("FINISHED")
    assert "was damaged: moved to" in caplog.text
    assert bench.runs(study)[0].info.status == "FINISHED"
