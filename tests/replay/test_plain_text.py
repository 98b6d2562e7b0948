from __future__ import annotations

from kltune.replay.plain_text import render_text
from kltune.report.document import (
    Bullets,
    Card,
    Cards,
    Code,
    Document,
    Facts,
    Figure,
    Figures,
    Grid,
    Hero,
    Paragraph,
    Section,
    Tile,
)


def test_every_block_has_a_form_and_columns_are_aligned() -> None:
    grid = Grid(("token", "kl"), (("eggs", "0.5"), ("a", "12.25")), frozenset({1}), frozenset({1}))
    blocks = (
        Paragraph("All in nats."),
        Facts((("penalty", "k2-loss"), ("kl", "0.1"))),
        grid,
        Bullets(("one",)),
        Cards("Row 0", "how\nlong?", (Card("c", "8 min", "proxy 1"),)),
        Code("kltune replay x"),
        Figures((Figure("<svg/>", "a curve"),)),
    )
    document = Document("Trial 7", "sub", "loss = 1", True, (Section("Tokens", "t", blocks),))
    assert render_text(document) == (
        "Trial 7\n=======\n\nloss = 1\n\nsub\n\nTokens\n------\n\n"
        "All in nats.\n\n"
        "penalty  k2-loss\nkl       0.1\n\n"
        "token     kl\neggs     0.5\na      12.25 <\n\n"
        "- one\n\n"
        "Row 0\n  prompt      how⏎long?\n  completion  8 min\n  proxy 1\n\n"
        "    kltune replay x\n\n"
        "[figure: a curve]\n"
    )


def test_hidden_characters_of_a_model_are_seen() -> None:
    grid = Grid(("token",), (("a\u202eb\x1b[2J",),))
    document = Document("T", "", "", True, (Section("S", "s", (grid,)),))
    assert "a\\u202eb\\u001b[2J" in render_text(document)


def test_a_first_screen_is_lines() -> None:
    hero = Hero(
        (("beta", "0.02"),), (Tile("Stop", "step 40", "of 80"),), "kltune export s --to trl"
    )
    document = Document("T", "", "", True, (Section("S", "s", (hero,)),))
    assert "beta: 0.02\nStop: step 40 of 80\n    kltune export s --to trl" in render_text(document)
