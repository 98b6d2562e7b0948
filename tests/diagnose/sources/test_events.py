from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from kltune.diagnose.sources.events import event_files, read_events
from kltune.errors import EnvironmentMissingError, StudyError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _write(folder: Path, rows: dict[str, list[float]], start: int = 1, args: object = None) -> Path:
    """Event files as torch's SummaryWriter makes them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder), filename_suffix=f".{start}")
    for name, values in rows.items():
        for step, value in enumerate(values, start=start):
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(step=step, summary=summary))
    if args is not None:
        text = TensorProto(dtype=7, string_val=[json.dumps(args).encode()])
        value: Any = Summary.Value(tag="args/text_summary", tensor=text)
        writer.add_event(Event(step=0, summary=Summary(value=[value])))
    writer.close()
    return folder


def test_scalars_and_arguments_are_read(tmp_path: Path) -> None:
    rows = {"train/kl": [0.1, 0.2], "train/loss": [0.5, math.nan]}
    (raw,) = read_events(_write(tmp_path / "run", rows, args={"beta": 0.04, "x": None}))
    assert raw.rows[0][0] == 1
    assert raw.rows[0][1] == pytest.approx({"train/kl": 0.1, "train/loss": 0.5})
    assert math.isnan(raw.rows[1][1]["train/loss"])
    assert raw.facts == {"beta": 0.04}


def test_each_folder_is_a_run_and_its_files_are_one(tmp_path: Path) -> None:
    _write(tmp_path / "a", {"train/kl": [0.1, 0.2, 0.3]})
    _write(tmp_path / "a", {"train/kl": [0.9]}, start=3)
    _write(tmp_path / "b", {"train/kl": [0.5]})
    first, second = read_events(tmp_path)
    assert [step for step, _ in first.rows] == [1, 2, 3]
    assert first.rows[2][1]["train/kl"] == pytest.approx(0.9)
    assert len(second.rows) == 1


def test_a_record_that_a_crash_cut_short_costs_only_itself(tmp_path: Path) -> None:
    folder = _write(tmp_path, {"train/kl": [0.1, 0.2, 0.3]})
    (file,) = event_files(folder)
    file.write_bytes(file.read_bytes()[:-5])
    (raw,) = read_events(folder)
    assert [step for step, _ in raw.rows] == [1, 2]


def test_events_without_a_scalar_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="hold no scalar"):
        read_events(_write(tmp_path, {}))


def test_a_missing_package_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _write(tmp_path, {"train/kl": [0.1]})
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    with pytest.raises(EnvironmentMissingError, match=r"pip install 'kltune\[tensorboard\]'"):
        read_events(folder)
