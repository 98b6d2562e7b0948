from __future__ import annotations

from pathlib import Path

from fake_study import trial, write_study

from kltune.report.document import Block, Bullets, Figures, Paragraph
from kltune.report.importance_blocks import importance_blocks
from kltune.report.rows import read_study
from kltune.statistics.explained import Explained, WhyNot
from kltune.study.importance import Importance

BETA = Explained("beta", 0.78, 0.002, 20, is_found=True)
TARGET = Explained("target_kl", 0.1, 1.0, 12)
FEW = Explained("horizon", None, None, 4, why_not=WhyNot.FEW)


def blocks_of(tmp_path: Path, importance: Importance) -> tuple[Block, ...]:
    study = read_study(write_study(tmp_path, [trial(0.1), trial(0.2)]))
    return importance_blocks(study, None, importance)


def words(blocks: tuple[Block, ...]) -> str:
    return "\n".join(b.text for b in blocks if isinstance(b, Paragraph))


def test_each_parameter_says_from_how_many_trials_it_is_judged(tmp_path: Path) -> None:
    found = Importance({"beta": 0.78}, None, 20, 24, (BETA, TARGET, FEW))
    blocks = blocks_of(tmp_path, found)
    assert "The value varied with beta; nothing else is told from chance (20" in words(blocks)
    assert "20 of 24 trials used" in words(blocks)
    (said,) = [b for b in blocks if isinstance(b, Bullets)]
    assert said.items == (
        "beta: explains 78 % of the variance of the value between 20 trials (p < 0.01)",
        "target_kl: can't be told from chance by 12 trials (p = 1.00)",
        "horizon: can't be said from 4 trials, which are too few",
    )
    (figures,) = [b for b in blocks if isinstance(b, Figures)]
    assert "only what is told from chance" in figures.figures[0].caption


def test_where_chance_explains_all_no_share_is_drawn(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path, Importance({}, None, 12, 12, (TARGET, FEW)))
    assert "No searched parameter can be told from chance here" in words(blocks)
    drawn = [f for b in blocks if isinstance(b, Figures) for f in b.figures]
    assert not any("Variance" in f.caption for f in drawn)


def test_two_found_parameters_are_both_named(tmp_path: Path) -> None:
    second = Explained("target_kl", 0.1, 0.03, 12, is_found=True)
    found = Importance({"beta": 0.78, "target_kl": 0.1}, None, 20, 20, (BETA, second))
    assert "varied with beta and target_kl" in words(blocks_of(tmp_path, found))
