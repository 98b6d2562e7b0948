"""The parts of a weighted proxy are told apart: which one grew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_study import trial, write_study

from kltune.report.build import build_report
from kltune.report.document import Figures, Grid
from kltune.report.part_blocks import part_blocks, part_curves
from kltune.report.rows import StudyRows, read_study

PARTS = [{"function": "m:near"}, {"function": "m:short", "name": "brief", "weight": 0.5}]
TASK: dict[str, Any] = {"prompts": "p.jsonl", "gold": "m:good", "proxy": {"weighted": PARTS}}


def with_parts(folder: Path, task: object = TASK) -> StudyRows:
    """Two trials of 80 steps; near stays at 1, brief grows by .1 a step; brief could not score step 3."""
    write_study(folder, [trial(0.1), trial(0.3)], task=task)
    for path in folder.glob("trials/*/metrics.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row["train/part_near"] = 1.0
            if row["step"] != 3:
                row["train/part_brief"] = row["step"] / 10
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_study(folder)


def test_the_part_that_grew_is_told_with_its_weight(tmp_path: Path) -> None:
    study = with_parts(tmp_path)
    _, grid, figures = part_blocks(study, (study.trials[1], None))
    assert isinstance(grid, Grid)
    assert isinstance(figures, Figures)
    # The first 8 of 79 steps that brief has end at .9 (step 3 is absent), the last 8 are 73 to 80.
    first, last = (0.1 + 0.2 + sum(n / 10 for n in range(4, 10))) / 8, (7.3 + 8.0) / 2
    assert grid.rows[0] == ("near", "1", "1", "1", "+0", "+0")
    assert grid.rows[1][:2] == ("brief", "0.5")
    assert float(grid.rows[1][4]) == pytest.approx(last - first, rel=5e-3)
    assert float(grid.rows[1][5]) == pytest.approx((last - first) / 2, rel=5e-3)
    assert figures.figures[0].chart is not None


def test_a_step_where_a_part_scored_nothing_is_left_out(tmp_path: Path) -> None:
    study = with_parts(tmp_path)
    curves = part_curves(study.trials[0], ["near", "brief", "absent"])
    assert set(curves) == {"near", "brief"}
    assert [x for x, _ in curves["brief"]] == [n for n in range(1, 81) if n != 3]


def test_a_proxy_without_parts_or_steps_has_no_such_section(tmp_path: Path) -> None:
    plain = read_study(write_study(tmp_path / "a", [trial(0.1)]))
    assert part_blocks(plain, ()) == ()
    older = read_study(write_study(tmp_path / "b", [trial(0.1)], task=TASK))
    assert part_blocks(older, (older.trials[0],)) == ()


def test_the_report_shows_them(tmp_path: Path) -> None:
    with_parts(tmp_path)
    paths = build_report(tmp_path)
    assert "What the parts of the proxy did" in paths.html.read_text(encoding="utf-8")
    assert "| brief" in paths.markdown.read_text(encoding="utf-8")
