from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confirm_case import judged, result_of
from confirm_case import study as study_with_recipes
from fake_study import TOKENS, trial, write_study
from scipy import stats

from kltune.confirm.result import ConfirmResult
from kltune.metrics.jsonl import read_json, write_json
from kltune.report.choice import choose
from kltune.report.compare import prompt_scores
from kltune.report.document import Tile
from kltune.report.hero_tiles import best_baseline, tiles
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.trial.outcome import StopReason
from kltune.trial.words import number, score


def read(folder: Path, *fakes: Any, **spec: Any) -> StudyRows:
    return read_study(write_study(folder, list(fakes), **spec))


def found_in(study: StudyRows) -> Recommendation:
    found = recommend(study)
    assert isinstance(found, Recommendation)
    return found


def tiles_of(study: StudyRows) -> dict[str, Tile]:
    return {tile.label: tile for tile in tiles(study, choose(study, found_in(study)))}


def confirmed(folder: Path, means: list[float], other: int | None = None) -> StudyRows:
    """Seven trials, and a confirmation of the recommended one."""
    best = found_in(read_study(study_with_recipes(folder / "probe"))).best.number
    result: ConfirmResult = result_of(judged(means))
    arms = [replace(result.arms[0], number=best), *result.arms[1:]]
    if other is not None:
        arms[1] = replace(arms[1], number=other)
    path = study_with_recipes(folder / "s")
    write_json(path / "confirm" / "confirm.json", replace(result, arms=tuple(arms)).as_json())
    return read_study(path)


def test_the_gold_is_the_corrected_one_with_its_interval_and_says_so(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.3), trial(0.1))
    row = found_in(study).best
    tile = tiles_of(study)["Expected gold, not confirmed"]
    assert row.value is not None
    scores = prompt_scores(row, study.spec.objective, study.spec.kl_unit)
    assert scores is not None
    half = stats.t.ppf(0.975, 63) * scores.std(ddof=1) / 8
    assert tile.value == score(row.value)
    assert f"95 % interval {score(row.value - half)} to {score(row.value + half)}" in tile.note
    assert tile.note.endswith(
        "one seed; corrected for having picked the step; not corrected for choosing among 2 trials"
    )


def test_a_value_of_the_end_has_the_interval_of_its_own_prompts(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.3), objective={"metric": "gold_final", "kl_limit": None})
    (row,) = study.trials
    scores = prompt_scores(row, study.spec.objective, study.spec.kl_unit)
    assert scores is not None
    assert row.value == pytest.approx(scores.mean())
    half = stats.t.ppf(0.975, 63) * scores.std(ddof=1) / 8
    note = tiles_of(study)["Expected gold, not confirmed"].note
    assert f"{score(row.value - half)} to {score(row.value + half)}" in note
    assert "corrected" not in note


def test_the_kl_is_that_of_the_stop_in_both_units_with_its_range(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.2, gold=(0.2, *[0.8] * 8)))
    (row,) = study.trials
    assert row.peak is not None
    tile = tiles_of(study)["KL at the stop"]
    assert tile.value == f"{number(row.peak.kl_token)} nats/token"
    assert tile.note.startswith(f"= {number(TOKENS * row.peak.kl_token)} nats/sequence; exact")
    kls = [c.kl_token for c in row.checkpoints if c.step >= 10]
    assert f"{number(min(kls))} to {number(max(kls))} nats/token over steps 10 to 80" in tile.note


def test_the_studys_own_kl_unit_comes_first(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.3), kl_unit="sequence", objective={"kl_limit": 20.0})
    tile = tiles_of(study)["KL at the stop"]
    assert tile.value.endswith("nats/sequence")
    assert "nats/token; exact" in tile.note


def test_of_a_trial_judged_by_its_end_the_kl_is_that_of_the_end(tmp_path: Path) -> None:
    gold = (0.2, 0.9, *[0.5] * 7)
    objective = {"metric": "gold_final", "kl_limit": None}
    study = read(tmp_path, trial(0.3, gold=gold), objective=objective)
    (row,) = study.trials
    assert row.final is not None
    found = tiles_of(study)
    assert found["KL at the stop"].value == f"{number(row.final.kl_token)} nats/token"
    assert found["Stop"].value == "step 80"
    assert "judged by gold_final" in found["Stop"].note


def test_a_guards_end_is_part_of_the_stop(tmp_path: Path) -> None:
    ended = trial(0.1, steps=40, reason=StopReason.GOLD_DROP, detail="gold fell")
    note = tiles_of(read(tmp_path, ended))["Stop"].note
    assert "it ran to step 40, where the guard gold_drop ended it" in note


def test_how_sure_counts_ties_and_says_what_may_be_lost(tmp_path: Path) -> None:
    wide = (0.2, *[0.8] * 8)
    tied = [trial(beta, gold=wide) for beta in (0.2, 0.5, 0.7)]
    tile = tiles_of(read(tmp_path / "tied", *tied, trial(0.9, gold=(0.2,) * 9)))["How sure"]
    assert tile.value == "tied with 2 others"
    assert tile.note.startswith("3 of 4 settings can't be told apart on these prompts, one seed")
    assert "gold (95 %)" in tile.note
    clear = [trial(0.2, gold=(0.2, *[0.9] * 8)), trial(0.9, gold=(0.2,) * 9)]
    assert tiles_of(read(tmp_path / "c", *clear))["How sure"].value == "told apart from all"
    alone = tiles_of(read(tmp_path / "alone", trial(0.2)))
    assert alone["How sure"].value == "nothing to compare"


def test_the_best_baseline_is_the_highest_that_is_within_the_limits(tmp_path: Path) -> None:
    study = read(
        tmp_path,
        trial(0.3, gold=(0.2, *[0.9] * 8)),
        trial(0.02, origin="baseline:verl-ppo", gold=(0.2, *[0.7] * 8)),
        trial(0.0, origin="zero", gold=(0.2, *[0.8] * 8)),
    )
    found = found_in(study)
    best = best_baseline(found)
    assert best is not None
    assert best.difference is not None
    assert best.row.number == 2
    tile = tiles_of(study)["Against the best baseline"]
    assert tile.value == f"{best.difference.mean:+.3f} gold"
    assert f"{best.difference.low:+.3f} to {best.difference.high:+.3f}" in tile.note
    assert "the best is trial 2 (no KL (beta 0))" in tile.note
    outcome = best.row.outcome
    assert outcome is not None
    broken = replace(best.row, outcome=replace(outcome, is_feasible=False))
    outside = replace(best, row=broken)
    rivals = tuple(outside if v.row.number == 2 else v for v in found.baselines)
    within = best_baseline(replace(found, baselines=rivals))
    assert within is not None
    assert within.row.number == 1
    none_within = best_baseline(replace(found, baselines=(outside,)))
    assert none_within is outside


def test_without_baselines_there_is_no_tile_for_them(tmp_path: Path) -> None:
    assert "Against the best baseline" not in tiles_of(read(tmp_path, trial(0.3), trial(0.1)))


def test_a_confirmation_gives_gold_kl_and_comparison_of_fresh_seeds(tmp_path: Path) -> None:
    study = confirmed(tmp_path, [1.0, 1.0, 0.2, 0.0])
    found = tiles_of(study)
    result = choose(study, found_in(study)).confirmation
    assert result is not None
    place, start = result.main.places[0], result.main.places[3]
    assert found["Expected gold, confirmed"].value == score(place.gold)
    assert "on 8 fresh seeds and 32 test prompts" in found["Expected gold, confirmed"].note
    assert found["Gold before training"].value == score(start.gold)
    assert found["KL at the stop"].value == "0.1 nats/token"
    assert "at step 40; 0.1 to 0.1 nats/token from seed to seed" in found["KL at the stop"].note
    assert found["How sure"].value == "tied with 1 other"
    best = result.main.best_baseline
    assert best is not None
    assert found["Against the best baseline"].value == f"{best.difference:+.3f} gold"
    assert "Expected gold, not confirmed" not in found


def test_a_changed_winner_has_its_own_numbers_and_no_comparison_of_the_old_one(
    tmp_path: Path,
) -> None:
    study = confirmed(tmp_path, [0.2, 1.5, 0.2, 0.0], other=6)
    choice = choose(study, found_in(study))
    assert choice.is_changed
    assert choice.confirmation is not None
    found = tiles_of(study)
    new = choice.confirmation.main.places[1]
    assert found["Expected gold, confirmed"].value == score(new.gold)
    assert found["How sure"].value == "the winner changed"
    assert "Against the best baseline" not in found


def test_a_setting_better_than_all_says_so(tmp_path: Path) -> None:
    tile = tiles_of(confirmed(tmp_path, [2.0, 1.0, 0.2, 0.0]))["How sure"]
    assert tile.value == "better than all 2"


def test_the_cost_is_wall_time_with_what_was_spared(tmp_path: Path) -> None:
    stopped = trial(0.1, steps=40, reason=StopReason.PRUNED, detail="beaten")
    path = write_study(tmp_path, [trial(0.3), stopped])
    tile = tiles_of(read_study(path))["What the search cost"]
    assert "of workers' time so far; 2 trials, 120 trial-steps" in tile.note
    assert "25 % of those planned were spared by pruning and guards" in tile.note
    write_json(path / "timing.json", {"schema": 1, "wall_s": 90.0})
    known = tiles_of(read_study(path))["What the search cost"]
    assert (known.value, read_json(path / "timing.json")["wall_s"]) == ("1 min 30 s", 90.0)
    assert known.note.startswith("wall time")


def test_the_stop_names_an_earlier_tied_step_and_that_the_last_step_is_in_it(
    tmp_path: Path,
) -> None:
    gold = (0.2, 0.1, 0.9, 0.1, 0.9, 0.92, 0.92, 0.91, 0.92)
    note = tiles_of(read(tmp_path / "a", trial(1.0, gold=gold, noise=0.2)))["Stop"].note
    assert "Step 20 can't be told from it either, at 50 % of the steps" in note
    assert note.endswith("Step 80 is the last that ran: gold may still hold or rise beyond")
    hump = (0.2, 0.1, 0.9, 0.1, *[0.0] * 5)
    note = tiles_of(read(tmp_path / "b", trial(1.0, gold=hump, noise=0.2)))["Stop"].note
    assert "either" not in note
    assert "last that ran" not in note


def test_the_cost_of_a_confirmed_study_has_the_confirmation_in_it(tmp_path: Path) -> None:
    study = confirmed(tmp_path, [1.0, 1.0, 0.2, 0.0])
    found = tiles_of(replace(study, timing={"wall_s": 90.0}))
    assert found["What it cost"].value == "1 min 42 s"
    assert found["What it cost"].note.startswith(
        "1 min 30 s for the search, 12 s for the last call of kltune confirm"
    )
    assert "What the search cost" not in found
