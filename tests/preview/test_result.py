from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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


def _broken(found: Forecast) -> list[dict[str, Any]]:
    whole = found.as_json()
    return [
        {**whole, "curves": []},
        {**whole, "readings": []},
        {**whole, "curves": [whole["curves"][0], whole["curves"][0]]},
        {**whole, "curves": [{**whole["curves"][0], "points": []}, whole["curves"][1]]},
        {**whole, "curves": [{**curve, "points": [3]} for curve in whole["curves"]]},
        {**whole, "suggestion": {**whole["suggestion"], "beta": []}},
        {**whole, "sigma_r": {"value": "many", "low": None, "high": None}},
        {**whole, "subject": None},
    ]


@pytest.mark.parametrize("number", range(8))
def test_a_preview_that_lacks_a_part_is_refused_in_one_line(tmp_path: Path, number: int) -> None:
    write_json(tmp_path / FILE, _broken(forecast_of(scored(hump)))[number])
    with pytest.raises(StudyError, match=r"preview\.json: not a preview") as refused:
        read_forecast(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 99}', '{"seconds": NaN}', "\x00"])
def test_what_is_no_preview_at_all_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(StudyError, match=r"preview\.json"):
        read_forecast(tmp_path)


def test_a_scorer_that_never_varies_comes_back(tmp_path: Path) -> None:
    data = scored(hump)
    found = forecast_of(replace(data, gold_PN=np.ones_like(data.gold_PN)))
    write_json(tmp_path / FILE, found.as_json())
    assert read_forecast(tmp_path) == found
    assert found.flat == ("gold",)
