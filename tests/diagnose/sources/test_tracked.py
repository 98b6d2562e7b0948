from __future__ import annotations

from pathlib import Path

import pytest

from kltune.diagnose.sources.tracked import Address, address, database_address, tracker_runs
from kltune.errors import SpecError
from kltune.metrics.mlflow import Store
from kltune.metrics.payload import Point
from kltune.metrics.tracker import Tracker

_TRACKER = {"MLFLOW_TRACKING_URI": "sqlite:////t.db"}


@pytest.mark.parametrize(
    ("text", "run", "expected"),
    [
        ("mlflow:abc", None, Address("sqlite:////t.db", "abc")),
        ("runs:/abc", None, Address("sqlite:////t.db", "abc")),
        ("sqlite:////x/m.db", "abc", Address("sqlite:////x/m.db", "abc")),
        ("http://host:5000", None, Address("http://host:5000", None)),
        (
            "http://host:5000/#/experiments/3/runs/abc?tab=1",
            None,
            Address("http://host:5000", "abc"),
        ),
        ("http://host/ml/#/experiments/3", None, Address("http://host/ml", "3")),
    ],
)
def test_every_form_of_an_address_is_read(text: str, run: str | None, expected: Address) -> None:
    assert address(text, run, _TRACKER) == expected


@pytest.mark.parametrize("text", ["studies/kitchen", "C:/x", "run.jsonl", "mlflow.db"])
def test_a_path_is_no_address(text: str) -> None:
    assert address(text, None, {}) is None


def test_a_run_without_its_tracker_is_refused() -> None:
    with pytest.raises(SpecError, match="MLFLOW_TRACKING_URI"):
        address("runs:/abc", None, {})


@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_a_studys_parent_is_no_run_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    store = Store.open(Tracker(f"sqlite:///{path}", tmp_path.as_uri(), is_own=False))
    experiment = store.experiment("kitchen")
    parent = store.create_run(experiment, "kitchen", {}, 0)
    store.log_points(parent, [Point("study/best_value", 0.5, 1000, 1)])
    child = store.create_run(experiment, "trial 0", {}, 1)
    store.log_params(child, {"beta": "0.1"})
    store.log_points(child, [Point("kl/exact_token", 0.1 * s, 1000 * s, s) for s in (1, 2)])
    (raw,) = tracker_runs(database_address(path, None))
    assert raw.path.endswith("(trial 0)")
    assert raw.rows == ((1, {"kl/exact_token": 0.1}), (2, {"kl/exact_token": 0.2}))
    assert raw.facts == {"beta": "0.1"}
