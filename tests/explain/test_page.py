from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass

import pytest

from kltune.explain import page
from kltune.spec.penalty import Penalty


@dataclass(frozen=True)
class Part:
    values: tuple[float, ...]
    penalty: Penalty = Penalty.K2_LOSS


@dataclass(frozen=True)
class Facts:
    kl: float
    parts: tuple[Part, ...]
    absent: float | None = None


def test_json_is_strict_and_names_what_it_could_not_hold() -> None:
    text = page.strict_json("kl", Facts(math.inf, (Part((1.0, math.nan)),)))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse) == {
        "schema": 1,
        "topic": "kl",
        "kl": None,
        "parts": [{"values": [1.0, None], "penalty": "k2-loss"}],
        "absent": None,
        "non_finite": ["kl", "parts.0.values.1"],
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.04704, "0.0470"),
        (-0.07, "-0.0700"),
        (0.0, "0"),
        (0.00059, "0.0006"),
        (1e-6, "1e-06"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_nats_have_four_decimals(value: float | None, text: str) -> None:
    assert page.nats(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.15, "0.15"),
        (81_920.0, "81,920"),
        (1e-4, "0.0001"),
        (1e12, "1e+12"),
        (0, "0"),
        (None, "–"),
    ],
)
def test_short_numbers(value: float | None, text: str) -> None:
    assert page.short(value) == text


def test_piped_screens_have_no_trailing_spaces_and_no_colours() -> None:
    stream = io.StringIO()
    table = page.columns(["a", "b<"], [("x", page.bad("yes")), ("long", "")])
    page.show(page.stack(page.title("t"), None, table, page.facts([("k", "v")])), stream)
    lines = stream.getvalue().splitlines()
    assert lines == ["t", "a     b", "x     yes", "long", "k  v"]


def test_wide_terminals_keep_prose_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    stream = io.StringIO()
    page.show(page.prose("word " * 60), stream)
    assert 90 < max(map(len, stream.getvalue().splitlines())) <= page.WIDTH


@pytest.mark.parametrize("width", [15, 16])
def test_a_table_that_does_not_fit_becomes_a_list(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    rows = [("x-name", page.bad("1.25"), ""), ("long", "2.5", "so")]
    page.show(page.columns(["who", "mean", "<"], rows), stream)
    lines = stream.getvalue().splitlines()
    if width < 16:
        assert lines == ["who x-name", "  mean 1.25", "who long", "  mean 2.5; so"]
    else:
        assert [line.split()[0] for line in lines] == ["who", "x-name", "long"]
