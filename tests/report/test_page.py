from __future__ import annotations

import base64
import gzip
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from page_case import report

from kltune.report.document import (
    Card,
    Cards,
    Chart,
    Code,
    Document,
    Facts,
    Figure,
    Figures,
    Grid,
    Hero,
    Paragraph,
    Section,
    Sheet,
    Tile,
)
from kltune.report.embed import bundle, script_hash
from kltune.report.page import render_page

HOSTILE = (
    "<script>alert(1)</script>",
    "</style></script><img src=x onerror=alert(1)>",
    "\"' onmouseover='x' `tick` | pipe",
    "🥚 عشر دقائق \u202e",
    "w" * 10_240,
    "&lt;b&gt; &amp;",
)


def document_with(text: str, *, drawn: bool = False) -> Document:
    blocks = (
        Paragraph(text),
        Facts(((text, text),)),
        Grid((text,), ((text,),)),
        Cards(text, text, (Card(text, text, text, text),), text),
        Code(text),
        Hero(((text, text),), (Tile(text, text, text),), text),
        *(
            [Figures((Figure("<svg/>", text, False, Chart(({"name": text},), {})),))]
            if drawn
            else []
        ),
    )
    sheets = (Sheet(1, text, ((text, text),), {}, (text,)),) if drawn else ()
    return Document(text, text, text, True, (Section(text, "one", blocks),), False, sheets)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_adds_no_tag_and_no_attribute(text: str) -> None:
    tame, hostile = Reader(), Reader()
    tame.feed(render_page(document_with("t" * len(text), drawn=True)))
    hostile.feed(render_page(document_with(text, drawn=True)))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in tame.tags]
    assert [sorted(attrs) for _, attrs in hostile.tags] == [sorted(attrs) for _, attrs in tame.tags]


@pytest.mark.parametrize("text", [HOSTILE[0], HOSTILE[2], HOSTILE[4], HOSTILE[5]], ids=range(4))
def test_hostile_text_is_shown_as_it_was(text: str) -> None:
    reader = Reader()
    reader.feed(render_page(document_with(text)))
    assert reader.text.count(text) >= 10


def policy_of(page: str) -> str:
    reader = Reader()
    reader.feed(page)
    (found,) = [
        attrs["content"] or ""
        for tag, attrs in reader.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    return found


def test_a_page_without_charts_needs_no_network_and_no_library() -> None:
    page = render_page(document_with("tame"))
    assert "http://" not in page
    assert "https://" not in page
    assert policy_of(page).startswith("default-src 'none'; script-src 'sha256-")
    assert "prefers-color-scheme: dark" in page
    assert 'id="plotly"' not in page
    assert len(page) < 80_000


def test_only_the_pages_own_scripts_may_run() -> None:
    page = render_page(report(3))
    running = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    named = re.findall(r"'sha256-[^']+'", policy_of(page))
    assert [script_hash(text) for text in running] == named[:2]
    assert named[2:] == [script_hash(bundle())]
    scripts = policy_of(page).split("; ")[1]
    assert "unsafe" not in scripts


def test_a_page_asks_its_server_only_while_it_is_live() -> None:
    assert "connect-src" not in policy_of(render_page(report(3)))
    live = render_page(report(3, is_live=True))
    assert "connect-src 'self'" in policy_of(live)
    assert "<body data-live>" in live


def test_the_same_document_gives_the_same_bytes() -> None:
    assert render_page(report(3)) == render_page(report(3))


def test_the_library_is_there_once_and_packed() -> None:
    page = render_page(report(3))
    (packed,) = re.findall(r'<script type="text/plain" id="plotly">([^<]*)<', page)
    assert gzip.decompress(base64.b64decode(packed)).decode() == bundle()
    assert len(page) < 900_000


def test_every_section_is_in_both_lists_of_sections() -> None:
    page = render_page(report(3))
    for anchor in ("recommendation", "frontier", "trials"):
        assert page.count(f'<a href="#{anchor}">') == 2
        assert page.count(f'id="{anchor}"') == 1


@pytest.mark.parametrize(("is_doubtful", "kind"), [(False, "answer"), (True, "answer none")])
def test_a_doubtful_answer_is_set_off(is_doubtful: bool, kind: str) -> None:
    document = replace(document_with("tame"), is_doubtful=is_doubtful)
    assert f'<p class="{kind}">tame</p>' in render_page(document)
