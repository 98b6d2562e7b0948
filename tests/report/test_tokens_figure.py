from __future__ import annotations

import dataclasses
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from chart_case import accepted
from fake_study import trial
from tokens_case import with_tokens

from kltune.metrics.record import TokenProfile
from kltune.report.document import Figure
from kltune.report.tokens import TokenEvidence, read_tokens
from kltune.report.tokens_figure import MOST_COLUMNS, curves_figure, heat_map, profile_figure


def evidence_of(path: Path, **options: object) -> TokenEvidence:
    (row,) = with_tokens(path, [trial(0.3)], **options)
    return read_tokens(row)


def drawn(evidence: TokenEvidence) -> list[Figure]:
    figures = [
        heat_map(evidence, "Recommended: trial 0"),
        profile_figure(evidence.moments(), "Recommended: trial 0"),
        curves_figure(evidence, "Recommended: trial 0"),
    ]
    return [figure for figure in figures if figure is not None]


def test_three_drawings_that_follow_the_page_and_name_their_units(tmp_path: Path) -> None:
    figures = drawn(evidence_of(tmp_path))
    assert len(figures) == 3
    for figure in figures:
        ET.fromstring(figure.svg)
        assert "currentColor" in figure.svg
        assert "#010203" not in figure.svg
        assert figure.caption.startswith("Recommended: trial 0")
        accepted(figure.chart)
    assert "mean exact KL (nats/token)" in figures[0].svg
    assert "position in the completion (tokens)" in figures[0].svg
    assert "exact KL (nats/token)" in figures[1].svg
    assert "end (steps 76 to 80)" in figures[1].svg
    assert "a token (nats)" in figures[2].svg
    for label in ("p50", "p99", "gold (select)", "of the gradient", "of the loss"):
        assert label in figures[2].svg


def test_the_map_is_a_picture_inside_the_drawing_and_small(tmp_path: Path) -> None:
    svg = heat_map(evidence_of(tmp_path), "t").svg
    assert "data:image/png;base64" in svg
    assert "pixelated" in svg, "a browser that smooths it would blur neighbouring steps"
    assert len(svg) < 40_000


def test_a_long_training_is_drawn_with_few_columns(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path)
    profile = TokenProfile((0, 1, 2, 4), (0.1, 0.2, 0.3), (9, 9, 9))
    long = dataclasses.replace(evidence, profiles=dict.fromkeys(range(1, 5001), profile))
    figure = heat_map(long, "t")
    ET.fromstring(figure.svg)
    assert len(figure.svg) < 40_000
    assert MOST_COLUMNS < 200
    (heat,) = accepted(figure.chart).traces
    assert (heat["x"][0], heat["x"][-1]) == (0.5, 5000)
    assert len(heat["x"]) == len(heat["z"][0]) + 1 <= MOST_COLUMNS + 1
    assert (len(heat["y"]), len(heat["z"])) == (4, 3)


def test_the_extremes_are_drawn(tmp_path: Path) -> None:
    nan = math.nan
    cases = {
        "one token, one step": {1: TokenProfile((0, 1), (0.5,), (64,))},
        "no KL": {1: TokenProfile((0, 1, 2), (0.0, 0.0), (4, 0))},
        "not finite": {3: TokenProfile((0, 1, 2), (nan, 0.1), (9, 9))},
        "a gap": {
            1: TokenProfile((0, 1, 2), (0.1, 0.1), (9, 9)),
            9: TokenProfile((0, 1, 2), (0.2, 0.1), (9, 9)),
        },
        "no token": {1: TokenProfile((0, 1, 2), (0.0, 0.0), (0, 0))},
        "another shape": {
            1: TokenProfile((0, 1), (0.1,), (9,)),
            2: TokenProfile((0, 1, 2), (0.2, 0.1), (9, 9)),
        },
    }
    evidence = evidence_of(tmp_path)
    for name, profiles in cases.items():
        row = dataclasses.replace(evidence.row, peak=None)
        few = dataclasses.replace(evidence, row=row, profiles=profiles)
        for figure in drawn(few):
            ET.fromstring(figure.svg)
            assert not re.search(r"\bnan\b", figure.svg), name
        assert "peak" not in heat_map(few, "t").caption


def test_panels_without_numbers_are_left_out(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path)
    bare = dataclasses.replace(
        evidence,
        quantiles=dict.fromkeys(evidence.quantiles, ()),
        step_correlation=(),
        proxy_correlation=(),
        gold_correlation=(),
        loss_share=(),
    )
    figure = curves_figure(bare, "t")
    assert figure is not None
    assert "of the gradient" in figure.svg
    assert "correlation" not in figure.svg
    assert curves_figure(dataclasses.replace(bare, grad_share=()), "t") is None


def test_the_same_study_gives_the_same_bytes(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path)
    assert [f.svg for f in drawn(evidence)] == [f.svg for f in drawn(evidence)]


def test_tokens_without_any_kl_are_drawn_without_complaint(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path)
    zeros = dict.fromkeys(evidence.quantiles, ((1, 0.0), (2, 0.0)))
    figure = curves_figure(dataclasses.replace(evidence, quantiles=zeros), "t")
    assert figure is not None
    ET.fromstring(figure.svg)
