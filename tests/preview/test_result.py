from __future__ import annotations

from pathlib import Path

import pytest
from preview_case import forecast_of, hump, same, scored

from kltune.errors import StudyError
from kltune.metrics.jsonl import read_json, write_json
from kltune.preview.result import FILE, Forecast, read_forecast


@pytest.mark.parametrize("gold_of", [hump, same])
def test_a_forecast_comes_back_from_its_json(tmp_path: Path, gold_of) -> None:
    train = scored(same, seed=1) if gold_of is hump else None
    found = forecast_of(scored(gold_of), train=train)
    write_json(tmp_path / FILE, found.as_json())
    row = read_json(tmp_path / FILE)
    assert row["schema"] == 1
    assert "non_finite" not in row
    assert Forecast.from_json(row) == found
    assert read_forecast(tmp_path) == found


def test_no_file_is_no_forecast(tmp_path: Path) -> None:
    assert read_forecast(tmp_path) is None


def test_another_file_is_refused_by_its_name(tmp_path: Path) -> None:
    write_json(tmp_path / FILE, {"subject": {}})
    with pytest.raises(StudyError, match=r"preview\.json: not a preview"):
        read_forecast(tmp_path)
