"""What the terminal shows."""

from __future__ import annotations

import io
from dataclasses import replace

from confirm_case import judged, result_of
from rich.console import Console

from kltune.confirm.require import parse_requirement
from kltune.confirm.result import ConfirmResult
from kltune.confirm.table import confirm_table


def shown(result: ConfirmResult, width: int = 160) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(confirm_table(result))
    return stream.getvalue()


def test_verdict_settings_intervals_looks_and_gates_are_shown() -> None:
    one = judged([1.0, 1.0, 0.2, 0.0])
    gates = (
        parse_requirement("gold > baseline").gate(one),
        parse_requirement("winner stays").gate(one),
    )
    text = shown(result_of(one, gates=gates, looks=3, notes=("something odd",)))
    assert text.lstrip().startswith("Tied: on 8 fresh seeds")
    assert "untrained start" in text
    assert "looked at 3 times so far" in text
    assert "judged once" not in text
    assert "Single seeds" in text
    assert "--require 'gold > baseline' holds" in text
    assert "--require 'winner stays' does not hold" in text
    assert "note: something odd" in text
    row = next(line for line in text.splitlines() if line.startswith("trial 0: recipe a"))
    assert "8/8" in row
    assert "*" in row


def test_a_second_gold_has_a_table_of_its_own() -> None:
    one = judged([1.0, 1.0, 0.2, 0.0])
    text = shown(result_of(one, judgements=(one, replace(one, gold="judge.py:strict"))))
    assert "Judged by judge.py:strict" in text


def test_it_fits_80_columns() -> None:
    text = shown(result_of(judged([1.0, 1.0, 0.2, 0.0])), width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    assert "trial 4: k2-loss 0.1 " in text
