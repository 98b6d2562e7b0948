"""The report's section on several golds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chart_case import accepted
from fake_study import FakeTrial, trial, write_study

from kltune.report.document import Block, Figures, Grid, Paragraph
from kltune.report.golds_blocks import golds_blocks
from kltune.report.recommend import recommend
from kltune.report.rows import read_study

TASK = {"builtin": "kitchen", "golds": ["retention"]}
HIGH = (0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0)
LOST = (0.9, 0.9, 0.85, 0.6, 0.5, 0.5, 0.4, 0.3, 0.3)
MILD = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.7, 0.7, 0.7)
HELD = (0.9, 0.9, 0.9, 0.9, 0.88, 0.88, 0.87, 0.87, 0.86)


def blocks_of(folder: Path, *fakes: FakeTrial, **also: Any) -> tuple[Block, ...]:
    objective = {"kl_limit": 5.0, "also": {"retention": also}}
    study = read_study(write_study(folder, fakes, task=TASK, objective=objective))
    return golds_blocks(study, recommend(study))


def both() -> tuple[FakeTrial, FakeTrial]:
    greedy = trial(0.2, gold=HIGH, others={"retention": LOST}, noise=0.05)
    return greedy, trial(0.3, gold=MILD, others={"retention": HELD}, noise=0.05)


def grids(blocks: tuple[Block, ...]) -> list[Grid]:
    return [block for block in blocks if isinstance(block, Grid)]


def words(blocks: tuple[Block, ...]) -> str:
    return " ".join(block.text for block in blocks if isinstance(block, Paragraph))


def test_the_table_says_of_each_gold_what_became_of_it_and_its_limit(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, *both(), max_drop=0.1)
    stop, front = grids(blocks)
    assert [row[0] for row in stop.rows] == ["gold", "retention"]
    assert stop.rows[0][-1] == "the objective"
    assert stop.rows[1][-1] == "respected (at most 0.1 below step 0)"
    assert stop.rows[1][5] == "0.800"
    assert front.header[3] == "retention ± s.e."
    assert {row[5] for row in front.rows} == {"respected", "broken"}
    assert "Passed over for a limit: trial 0" in words(blocks)
    assert "partly luck" in words(blocks)


def test_doubt_about_a_limit_is_said(tmp_path: Path) -> None:
    stop = grids(blocks_of(tmp_path, both()[1], min=0.865))[0]
    assert stop.rows[1][-1] == (
        "respected (at least 0.865), but the prompts can't tell it from the limit"
    )


def test_a_gold_that_is_only_looked_at_has_no_limit(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, *both())
    assert grids(blocks)[0].rows[1][-1] == "no limit"
    assert "Passed over" not in words(blocks)


def test_there_is_one_figure_for_each_further_gold(tmp_path: Path) -> None:
    (figures,) = [b for b in blocks_of(tmp_path, *both(), max_drop=0.1) if isinstance(b, Figures)]
    (figure,) = figures.figures
    for label in ("beaten by none", "lowest allowed", "step 0", "recommended", "retention"):
        assert label in figure.svg
    accepted(figure.chart)


def test_without_an_answer_the_trade_off_is_still_shown(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, both()[0], min=0.95)
    assert [type(block) for block in blocks] == [Figures, Paragraph, Paragraph, Grid]


def test_a_long_front_is_cut_and_says_so(tmp_path: Path) -> None:
    steps = [i / 10 for i in range(9)]
    fall = [0.9 - i / 20 for i in range(9)]
    one = trial(0.2, gold=steps, others={"retention": fall}, noise=0.01)
    other = trial(
        0.3,
        gold=[g + 0.05 for g in steps],
        others={"retention": [f - 0.025 for f in fall]},
        noise=0.01,
    )
    blocks = blocks_of(tmp_path, one, other)
    front = grids(blocks)[-1]
    assert len(front.rows) == 8
    assert "8 more lie between these rows" in words(blocks)


def test_a_study_with_one_gold_has_no_such_section(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.2)]))
    assert golds_blocks(study, recommend(study)) == ()
