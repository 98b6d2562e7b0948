"""The JSON is strict and reads back as it was."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from confirm_case import judged, result_of

from kltune.confirm.require import parse_requirement
from kltune.confirm.result import ConfirmResult, read_confirmed
from kltune.errors import StudyError
from kltune.metrics.jsonl import write_json


def test_it_reads_back_as_it_was() -> None:
    one = judged([1.0, 0.9, 0.5, 0.0])
    result = result_of(
        one, judgements=(one, one), gates=(parse_requirement("gold > start").gate(one),)
    )
    text = json.dumps(result.as_json(), allow_nan=False)
    assert ConfirmResult.from_json(json.loads(text)) == result
    assert json.loads(text)["schema"] == 1


def test_what_can_not_be_read_is_named_with_the_way_out(tmp_path: Path) -> None:
    assert read_confirmed(tmp_path) is None
    path = tmp_path / "confirm" / "confirm.json"
    facts = result_of(judged([1.0, 0.9])).as_json()
    write_json(path, facts)
    assert read_confirmed(tmp_path) == ConfirmResult.from_json(facts)
    for broken in (
        {"seeds": [1]},
        {**facts, "arms": []},
        {**facts, "arms": None},
        {**facts, "arms": facts["arms"][:1]},
        {**facts, "judgements": [{**facts["judgements"][0], "against": [{"arm": 7}]}]},
    ):
        write_json(path, broken)
        with pytest.raises(
            StudyError, match=r"confirm\.json.*delete it, or run kltune confirm again"
        ):
            read_confirmed(tmp_path)


@pytest.mark.parametrize("damage", ['"x"', "NaN"])
def test_something_else_than_a_finite_number_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "confirm" / "confirm.json"
    write_json(path, result_of(judged([1.0, 0.9])).as_json())
    text = re.sub(r'"gold": -?[0-9.e-]+', f'"gold": {damage}', path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError, match=r"confirm\.json"):
        read_confirmed(tmp_path)


def test_a_number_that_is_none_is_null() -> None:
    result = result_of(judged([1.0, 0.9]), kl_limit=math.nan)
    assert json.loads(json.dumps(result.as_json(), allow_nan=False))["kl_limit"] is None
    with pytest.raises(KeyError):
        ConfirmResult.from_json({"schema": 1})
