"""What the tests of the mirror have at hand: see tracker_case."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tracker_case import Bench, FakeServer

from kltune.metrics.mlflow import Store
from kltune.metrics.tracker import Tracker


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Make MLflow's schema once: that takes seconds, copying it does not."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    Store.open(Tracker(f"sqlite:///{path}", None, is_own=False))
    return Bench(path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    server = FakeServer(tmp_path / "server")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()
