"""Differences are paired where the prompts are the same, and said not to be where they aren't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confirm_case import judged, result_of
from fake_study import trial
from versus_case import HIGH, LOW, PRINTS, a_study, findings, golds, other_trials, two

from kltune.metrics.jsonl import write_json
from kltune.report.versus import read_sides
from kltune.report.versus_findings import contrast_of
from kltune.spec.penalty import Penalty


def test_the_better_recommended_setting_is_told_apart(tmp_path: Path) -> None:
    (pair,) = findings(*two(tmp_path)).pairs
    assert pair.contrast is not None
    assert pair.contrast.difference == pytest.approx(HIGH - LOW, abs=0.15)
    assert pair.contrast.is_told_apart
    assert pair.contrast.is_paired
    assert pair.basis.startswith("paired on the same 64 prompts; noise of prompts only")


def test_the_sign_is_other_minus_one(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    forth, back = (findings(*paths).pairs[0].contrast for paths in ((low, high), (high, low)))
    assert forth is not None
    assert back is not None
    assert forth.difference == pytest.approx(-back.difference)
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low))


@pytest.mark.parametrize(
    ("prints", "why"),
    [
        ({**PRINTS, "prompts (select)": "d" * 64}, "not paired (other prompts: 64 and 64)"),
        ({}, "not paired (whether the prompts are the same is not on record: 64 and 64)"),
    ],
)
def test_other_prompts_are_not_paired(prints: dict[str, str], why: str, tmp_path: Path) -> None:
    one, other = a_study(tmp_path / "a"), a_study(tmp_path / "b", HIGH, prints=prints, scatter=1)
    (pair,) = findings(one, other).pairs
    assert pair.contrast is not None
    assert not pair.contrast.is_paired
    assert pair.basis.startswith(why)


def test_the_same_run_twice_tells_nothing(tmp_path: Path) -> None:
    (pair,) = findings(a_study(tmp_path / "a"), a_study(tmp_path / "b")).pairs
    assert pair.contrast is not None
    assert pair.contrast.difference == 0
    assert not pair.contrast.has_interval
    assert not pair.contrast.is_told_apart


def test_a_study_without_an_answer_is_said_to_have_none(tmp_path: Path) -> None:
    low, _ = two(tmp_path)
    (pair,) = findings(low, other_trials(tmp_path / "empty", [])).pairs
    assert pair.contrast is None
    assert pair.basis == "empty recommends no setting"


def test_all_pairs_of_several_studies_are_compared_and_each_interval_widens(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    third = a_study(tmp_path / "third", 0.7, scatter=2)
    alone = findings(low, high).pairs[0].contrast
    pairs = findings(low, high, third).pairs
    assert [(p.one.label, p.other.label) for p in pairs] == [
        ("low", "high"),
        ("low", "third"),
        ("high", "third"),
    ]
    assert alone is not None
    assert pairs[0].contrast is not None
    assert pairs[0].contrast.high - pairs[0].contrast.low > alone.high - alone.low


def test_seed_noise_is_added_where_both_have_it(tmp_path: Path) -> None:
    repeats = [
        trial(0.1, gold=golds(0.5), noise=0.2),
        *(
            trial(0.1, seed=s, origin=f"noise:{s}", gold=golds(0.5 + 0.1 * (s % 3)), noise=0.2)
            for s in (1, 2, 3)
        ),
    ]
    a = other_trials(tmp_path / "a", repeats)
    b = other_trials(tmp_path / "b", [trial(0.2, gold=golds(0.8), noise=0.2), *repeats])
    plain = a_study(tmp_path / "plain", 0.8, scatter=1)
    with_seeds, without = findings(a, b).pairs[0], findings(a, plain).pairs[0]
    assert with_seeds.basis.endswith("noise of prompts and of fresh seeds")
    assert without.basis.endswith("noise of prompts only, none of a fresh seed")
    assert with_seeds.contrast is not None
    assert without.contrast is not None
    widths = [c.high - c.low for c in (with_seeds.contrast, without.contrast)]
    assert widths[0] > 1.5 * widths[1]


def test_settings_that_both_judged_are_matched(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    found = findings(low, high)
    assert [s.words for s in found.shared] == ["k2-loss 0.1", "beta = 0 arm"]
    assert found.num_unshared == 2
    for shared in found.shared:
        assert len(shared.rows) == 2
        assert shared.against_first[0] is not None
        assert shared.against_first[0].is_told_apart


def test_a_recipe_is_matched_by_its_name_and_others_only_in_the_same_units(tmp_path: Path) -> None:
    recipe = {"origin": "baseline:trl-grpo-0.18", "penalty": Penalty.K3_LOSS}
    one = other_trials(tmp_path / "a", [trial(0.02, **recipe), trial(0.1), trial(0.3)])
    other = other_trials(tmp_path / "b", [trial(0.03, **recipe), trial(0.1), trial(0.4)])
    assert [s.words for s in findings(one, other).shared] == ["recipe trl-grpo-0.18", "k2-loss 0.1"]
    native = a_study(tmp_path / "c", beta_unit="native")
    assert [s.words for s in findings(native, other).shared] == []


def test_a_repeat_for_the_noise_floor_is_no_setting(tmp_path: Path) -> None:
    noisy = [trial(0.2), trial(0.2, seed=1, origin="noise:1")]
    found = findings(other_trials(tmp_path / "a", noisy), other_trials(tmp_path / "b", noisy))
    assert len(found.shared) == 1
    assert found.shared[0].rows[0].number == 0
    unjudged = [trial(0.2, reason=None, steps=15), noisy[1]]
    paths = (other_trials(tmp_path / "c", unjudged), other_trials(tmp_path / "d", unjudged))
    assert findings(*paths).shared == ()


def test_scores_that_were_not_kept_give_no_difference(tmp_path: Path) -> None:
    one, other = read_sides(two(tmp_path))
    assert one.best is not None
    assert other.best is not None
    bare = tuple(replace(c, gold_by_prompt=()) for c in one.best.checkpoints)
    peak = replace(one.best.peak, gold_by_prompt=())  # type: ignore[type-var]
    row = replace(one.best, checkpoints=bare, peak=peak)
    assert contrast_of((one, row), (other, other.best), 1) == (
        None,
        "scores by prompt are not on record",
    )


def test_two_confirmations_give_a_difference_on_test_prompts(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    for path, gold in ((low, 0.3), (high, 0.9)):
        result = result_of(judged([gold, 0.2, 0.1, 0.0]))
        arms = (replace(result.arms[0], number=0), *result.arms[1:])
        write_json(path / "confirm" / "confirm.json", replace(result, arms=arms).as_json())
    found = findings(low, high)
    assert found.pairs[0].confirmed is not None
    difference, lowest, highest = found.pairs[0].confirmed
    assert lowest < difference < highest
    one, other = found.sides
    assert one.confirmed is not None
    assert other.confirmed is not None
    assert difference == pytest.approx(other.confirmed[0] - one.confirmed[0])


def test_another_model_is_noticed(tmp_path: Path) -> None:
    low, high = two(tmp_path)
    larger = a_study(tmp_path / "larger", model={"base": "some/larger"})
    assert not findings(low, high).is_other_model
    assert findings(low, larger).is_other_model
