from __future__ import annotations

from html.parser import HTMLParser

import pytest

from kltune.report.document import Card, Cards, Code, Document, Facts, Grid, Paragraph, Section
from kltune.report.page import render_page

HOSTILE = (
    "<script>alert(1)</script>",
    "</style></script><img src=x onerror=alert(1)>",
    "\"' onmouseover='x' `tick` | pipe",
    "🥚 عشر دقائق \u202e",
    "w" * 10_240,
    "&lt;b&gt; &amp;",
)


def document_with(text: str) -> Document:
    blocks = (
        Paragraph(text),
        Facts(((text, text),)),
        Grid((text,), ((text,),)),
        Cards(text, text, (Card(text, text, text),)),
        Code(text),
    )
    return Document(text, text, text, True, (Section(text, "one", blocks),))


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
    tame.feed(render_page(document_with("tame")))
    hostile.feed(render_page(document_with(text)))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in tame.tags]
    assert [sorted(attrs) for _, attrs in hostile.tags] == [sorted(attrs) for _, attrs in tame.tags]


@pytest.mark.parametrize("text", [HOSTILE[0], HOSTILE[2], HOSTILE[4], HOSTILE[5]], ids=range(4))
def test_hostile_text_is_shown_as_it_was(text: str) -> None:
    reader = Reader()
    reader.feed(render_page(document_with(text)))
    assert reader.text.count(text) >= 10


def test_the_page_needs_no_network_and_no_script() -> None:
    page = render_page(document_with("tame"))
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
