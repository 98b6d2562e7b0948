from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from kltune.confirm.result import FILE, FOLDER
from kltune.launch.ls import LsRequest, run_ls
from kltune.launch.status import status_json
from kltune.launch.status_confirmed import confirmed_after, find_confirmed
from kltune.launch.status_facts import read_standing
from kltune.launch.status_table import status_table
from kltune.metrics.jsonl import write_json
from tests.confirm_case import judged, result_of
from tests.standing_case import NOW, write_study, write_trial


def confirmed(study: Path, golds: list[float], recommended: int = 3, of: int = 3) -> Path:
    """A finished study whose report recommends one trial, and a confirmation of that or another one."""
    write_study(study)
    for number in range(4):
        write_trial(study, number, ending={}, gold=0.1 * number)
    result = result_of(judged(golds))
    arms = (replace(result.arms[0], number=of, name=f"trial {of}: k2-loss"), *result.arms[1:])
    write_json(study / FOLDER / FILE, replace(result, arms=arms).as_json())
    write_json(study / "report.json", {"best": {"number": recommended}})
    os.utime(study / "report.json", (NOW, NOW))
    return study


def status_words(study: Path) -> str:
    out = io.StringIO()
    Console(file=out, width=80).print(status_table(read_standing(study, lambda: NOW), None))
    return " ".join(out.getvalue().split())


def listed(study: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, object]]:
    run_ls(LsRequest((study,)))
    table = capsys.readouterr().out
    run_ls(LsRequest((study,), as_json=True))
    return table, json.loads(capsys.readouterr().out)["studies"][0]


def test_gold_is_that_of_the_confirmation_where_it_is_of_the_recommended_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = confirmed(tmp_path / "s", [1.5, 0.9, 0.5, 0.0])
    found = find_confirmed(study)
    assert found is not None
    gold = f"{found.place.gold:.3f}"
    text = status_words(study)
    assert f"Confirmed trial 3: k2-loss: gold {gold} (95 % interval" in text
    assert "on 8 fresh seeds and 32 test prompts, KL 0.1 nats/token = 1 nats/sequence at" in text
    assert "It is better there than all 2 other settings tried." in text
    facts = status_json(read_standing(study), None)["confirmed"]
    assert isinstance(facts, dict)
    assert (facts["trial"], facts["is_of_recommended"], facts["verdict"]) == (3, True, "stays")
    assert facts["gold"] == pytest.approx(found.place.gold)
    table, row = listed(study, capsys)
    assert f"{gold}*" in table
    assert "0.1/token" in table
    assert row["confirmed"] == facts


def test_a_confirmation_of_another_setting_lends_no_gold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = confirmed(tmp_path / "s", [1.0, 0.9, 0.5, 0.0], recommended=2)
    text = status_words(study)
    assert "Confirmed not: the last confirmation was of trial 3: k2-loss" in text
    assert "fresh seeds" not in text
    facts = status_json(read_standing(study), None)["confirmed"]
    assert isinstance(facts, dict)
    assert facts["is_of_recommended"] is False
    table, row = listed(study, capsys)
    assert "0.200 " in table
    assert "0.2/token" in table
    assert row["confirmed"] is None


def test_gold_is_that_of_the_setting_that_was_put_above_it(tmp_path: Path) -> None:
    found = find_confirmed(confirmed(tmp_path, [0.2, 1.0, 0.5, 0.0]))
    assert found is not None
    assert found.result.main.verdict == "changes"
    assert found.place.arm == 1
    assert found.arm is found.result.arms[1]
    assert found.is_of(3)
    assert "The winner changes to" in status_words(tmp_path)


def test_without_one_that_can_be_read_nothing_is_claimed(tmp_path: Path) -> None:
    study = confirmed(tmp_path, [1.0, 0.9, 0.5, 0.0])
    assert confirmed_after(study, 0.0)
    assert not confirmed_after(study, NOW * 2)
    (study / FOLDER / FILE).write_text("{", encoding="utf-8")
    assert find_confirmed(study) is None
    assert "Confirmed" not in status_words(study)
    (study / FOLDER / FILE).unlink()
    assert find_confirmed(study) is None
    assert not confirmed_after(study, 0.0)
    assert status_json(read_standing(study), None)["confirmed"] is None
