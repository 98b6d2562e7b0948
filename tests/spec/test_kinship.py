"""What can be gamed never judges itself; what is near is told."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from pydantic import TypeAdapter

from kltune.spec.kinship import checked_again, kinship, leaves
from kltune.spec.scorers import Proxy

URL = {"url": "http://h/v1"}
JUDGE = {"judge": "m", **URL}
DUEL = {"win_rate": {"reference": "a.jsonl", "by": JUDGE}}
MODEL_DUEL = {"win_rate": {"reference": "a.jsonl", "by": {"model": "rm"}}}


def made(section: dict[str, Any]) -> object:
    return TypeAdapter(Proxy).validate_python(section)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ({"model": "rm"}, {"model": "rm", "batch": 4, "score": "probability"}, "same"),
        ({"model": "rm"}, {"model": "./rm"}, "same"),
        ({"model": "rm"}, {"model": "rm", "label": "toxic"}, "kin"),
        ({"model": "rm"}, {"model": "rm-large"}, None),
        (JUDGE, {**JUDGE, "scale": [0, 1], "temperature": 1, "url": "http://i/v1"}, "same"),
        (JUDGE, {**JUDGE, "ask": "Is {completion} polite?"}, "kin"),
        (JUDGE, {**JUDGE, "judge": "n"}, None),
        ({"recorded": "s.csv"}, {"recorded": "./s.csv", "missing": 0}, "same"),
        ({"recorded": "s.csv"}, {"recorded": "s.csv", "score": "second"}, None),
        ({"verifier": "math"}, {"verifier": "math", "timeout": 9}, "check"),
        ({"verifier": "math"}, {"verifier": "math", "answer": "other"}, None),
        ({"verifier": "json", "schema": "a.json"}, {"verifier": "json"}, None),
        ({"verifier": "code"}, {"verifier": "code", "score": "all"}, "check"),
        ({"verifier": "code"}, {"verifier": "math"}, None),
        (DUEL, JUDGE, "kin"),
        (JUDGE, DUEL, "kin"),
        (DUEL, DUEL, "same"),
        (DUEL, {"win_rate": {"reference": "b.jsonl", "by": JUDGE}}, "kin"),
        (MODEL_DUEL, {"model": "rm"}, "same"),
        (MODEL_DUEL, {"model": "other"}, None),
    ],
)
def test_the_same_judgement_is_told_from_its_kin(
    one: dict[str, Any], other: dict[str, Any], found: str | None
) -> None:
    def spelled(text: str) -> str:
        return str(PurePosixPath(text))

    assert kinship(made(one), made(other), spelled) == found
    assert kinship(made(other), made(one), spelled) == found


def test_every_part_of_a_sum_has_its_own_field() -> None:
    found = list(leaves("task.proxy", made({"weighted": [{"model": "rm"}, {"verifier": "math"}]})))
    assert [field for field, _ in found] == ["task.proxy.weighted.0", "task.proxy.weighted.1"]


def test_golds_that_are_the_proxys_own_verifier_are_named() -> None:
    proxy = made({"verifier": "math"})
    golds = {
        "task.gold": made({"verifier": "math", "timeout": 9}),
        "task.golds.other": made({"verifier": "math", "answer": "second"}),
        "task.golds.sum": made({"weighted": [{"verifier": "math"}, {"model": "rm"}]}),
    }
    assert checked_again(proxy, golds) == {"task.gold"}
    assert checked_again(made({"model": "rm"}), {"task.gold": made({"model": "rm"})}) == frozenset()
