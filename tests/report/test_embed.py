from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re

import pytest
from page_case import HOSTILE, sheet

from kltune.report import embed
from kltune.report.document import Chart


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_an_island_holds_no_markup_whatever_it_says(text: str) -> None:
    written = embed.island({text: [text]})
    assert re.search(r"[<>&\u2028\u2029]", written) is None
    assert written.isascii()
    assert len(json.loads(written)) == 1


@pytest.mark.parametrize("text", [HOSTILE[i] for i in (0, 1, 2, 4, 6, 8)], ids=range(6))
def test_an_island_gives_back_what_was_put_in(text: str) -> None:
    assert json.loads(embed.island({text: (text, True, None)})) == {text: [text, True, None]}


def test_hidden_characters_are_written_out() -> None:
    assert json.loads(embed.island("a\x00b\u202ec")) == "a\\u0000b\\u202ec"


def test_what_is_not_finite_is_null_and_numbers_keep_six_digits() -> None:
    data = [math.nan, math.inf, -math.inf, 1 / 3, 2.0, 123456789.0, 0.0]
    assert embed.island(data) == "[null,null,null,0.333333,2,123457000,0]"


def test_what_is_not_plain_data_is_refused() -> None:
    with pytest.raises(TypeError, match="object is not plain data"):
        embed.island([object()])


def test_a_chart_is_its_traces_and_its_layout() -> None:
    chart = Chart(({"type": "scatter", "y": (1.5, math.nan)},), {"title": {"text": "<b>"}})
    assert json.loads(embed.chart_island(chart)) == {
        "data": [{"type": "scatter", "y": [1.5, None]}],
        "layout": {"title": {"text": "<b>"}},
    }


def test_sheets_are_found_by_their_number() -> None:
    found = json.loads(embed.sheets_island((sheet(7), sheet(11))))
    assert list(found) == ["7", "11"]
    assert found["7"]["title"] == "Trial 7"
    assert found["11"]["curves"]["eval_step"][:2] == [0, 10]


def test_packed_text_is_gzip_that_is_the_same_every_time() -> None:
    packed = embed.packed("text ü" * 100)
    data = base64.b64decode(packed)
    assert gzip.decompress(data).decode() == "text ü" * 100
    assert data[4:8] == b"\0\0\0\0"  # no time of day
    assert data[9] == 255  # no operating system
    assert packed == embed.packed("text ü" * 100)


def test_the_scripts_are_one_scope_each_and_can_not_end_their_element() -> None:
    for names in (embed.HEAD_SCRIPTS, embed.PAGE_SCRIPTS):
        text = embed.script(names)
        assert text.startswith("(() => {\n")
        assert text.endswith("})();")
        assert (
            re.search(r"\beval\b|new Function|innerHTML|insertAdjacentHTML|https?:", text) is None
        )


def test_a_script_that_ends_its_element_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "files", lambda _: FakeFolder())
    with pytest.raises(ValueError, match="LICENSE"):
        embed.script(("LICENSE",))


class FakeFolder:
    def joinpath(self, _: str) -> FakeFolder:
        return self

    def read_text(self, encoding: str) -> str:
        return "'</script>'"


def test_the_hash_is_the_policys() -> None:
    digest = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
    assert embed.script_hash("x") == f"'sha256-{digest}'"


def test_the_bundle_is_the_vendored_one_and_evaluates_no_text() -> None:
    text = embed.bundle()
    assert "plotly.js (cartesian - minified) v4.1.1" in text[:200]
    assert re.search(r"\beval\(|new Function\(", text) is None
