from __future__ import annotations

import json
from pathlib import Path

from fake_study import FakeTrial, trial, typical_trials, write_study

from kltune.report.document import Bullets, Grid, Paragraph
from kltune.report.noise_blocks import noise_blocks, noise_facts
from kltune.report.ranking import rank
from kltune.report.rows import StudyRows, read_study

LOW, HIGH = (0.2, *[0.2] * 8), (0.2, *[0.9] * 8)
REPEATS = [
    trial(0.0, origin="zero", gold=HIGH),
    *[trial(0.0, origin=f"noise:{n}", gold=HIGH, seed=n) for n in range(1, 6)],
]


def study_of(tmp_path: Path, *fakes: FakeTrial) -> StudyRows:
    return read_study(write_study(tmp_path, list(fakes)))


def text_of(study: StudyRows) -> str:
    texts: list[str] = []
    for block in noise_blocks(study, rank(study)):
        if isinstance(block, Bullets):
            texts += block.items
        elif isinstance(block, Paragraph):
            texts.append(block.text)
    return "\n".join(texts)


def test_without_a_repeat_the_seeds_noise_is_called_unknown(tmp_path: Path) -> None:
    text = text_of(study_of(tmp_path, trial(0.2, gold=HIGH), trial(0.3, gold=LOW)))
    assert "What a seed alone changes was not measured" in text
    assert "1 of 2 settings may be the best (on these prompts, one seed)" in text
    assert "Noise floor" not in text


def test_with_repeats_the_floor_is_said_in_gold_with_its_intervals(tmp_path: Path) -> None:
    text = text_of(study_of(tmp_path, *REPEATS, trial(0.3, gold=LOW)))
    assert "One setting (beta = 0 arm) was trained on 6 seeds (trials 0, 1, 2, 3, 4, 5)" in text
    assert "Noise floor: two runs that differ in the seed alone part by up to" in text
    assert "with the noise of 6 seeds" in text
    assert "Comparing two settings on the same seed" in text
    assert "not measured: that takes two settings on several seeds" in text


def test_few_seeds_are_said_to_say_little(tmp_path: Path) -> None:
    text = text_of(study_of(tmp_path, *REPEATS[:3], trial(0.3, gold=LOW)))
    assert "3 seeds say little" in text
    assert "say little" not in text_of(study_of(tmp_path / "more", *REPEATS, trial(0.3)))


def test_a_study_where_all_are_tied_says_that_any_may_be_the_best(tmp_path: Path) -> None:
    text = text_of(study_of(tmp_path, trial(0.2, gold=HIGH), trial(0.3, gold=HIGH)))
    assert "None of the 2 settings can be told apart from the best" in text


def test_a_clear_gap_is_named(tmp_path: Path) -> None:
    assert "Below group 1 there is a clear gap" in text_of(
        study_of(tmp_path, trial(0.2, gold=HIGH), trial(0.3, gold=HIGH), trial(0.4, gold=LOW))
    )


def test_the_table_is_by_group_and_within_it_by_number(tmp_path: Path) -> None:
    fakes = [
        trial(0.2, gold=LOW),
        trial(0.3, gold=HIGH, value=0.9),
        trial(0.4, gold=HIGH, value=0.91),
    ]
    study = study_of(tmp_path, *fakes)
    (grid,) = [b for b in noise_blocks(study, rank(study)) if isinstance(b, Grid)]
    assert [row[:2] for row in grid.rows] == [("1", "1"), ("1", "2"), ("2", "0")]
    assert {len(row) for row in grid.rows} == {len(grid.header)}


def test_before_there_is_a_candidate_there_is_no_section(tmp_path: Path) -> None:
    study = study_of(tmp_path, trial(0.2, steps=20, reason=None))
    assert noise_blocks(study, rank(study)) == ()


def test_one_candidate_has_nothing_to_be_told_apart_from(tmp_path: Path) -> None:
    assert "nothing to tell it apart from" in text_of(study_of(tmp_path, trial(0.2)))


def test_the_facts_are_strict_json_with_what_was_not_measured_as_null(tmp_path: Path) -> None:
    facts = noise_facts(rank(study_of(tmp_path / "plain", *typical_trials())))
    json.dumps(facts, allow_nan=False)
    assert (facts["seeds_measured"], facts["noise_floor"], facts["correlation"]) == (
        False,
        None,
        None,
    )
    assert facts["groups"][0]
    facts = noise_facts(rank(study_of(tmp_path / "more", *REPEATS, trial(0.3, gold=LOW))))
    json.dumps(facts, allow_nan=False)
    assert facts["noise_floor"]["seeds"] == [0, 1, 2, 3, 4, 5]
    assert facts["same_seed"]["num_pairs"] == 1
    assert facts["groups"] == [[0], [6]]
