from __future__ import annotations

import io

from fake_transfer import result
from rich.console import Console

from kltune.statistics.drift import Interval
from kltune.transfer.result import TransferResult
from kltune.transfer.table import short, transfer_table


def shown(found: TransferResult) -> str:
    stream = io.StringIO()
    Console(file=stream, width=110).print(transfer_table(found))
    return stream.getvalue()


def test_the_table_names_sizes_units_and_verdicts() -> None:
    text = shown(result(factor=6.0))
    for part in ("0.093 M", "0.35 M", "1.4 M", "reward per nat", "nats/sequence"):
        assert part in text
    assert "shifts" in text
    assert "16 settings were judged in every study" in text
    assert "note: small has 16 of the 24 trials" in text


def test_an_interval_without_an_end_shows_two_dots() -> None:
    assert short(Interval(3.14, 2.0, None)) == "3.1 [2, ..]"
    assert short(Interval(None)) == "–"
    assert short(Interval(2.0)) == "2"
