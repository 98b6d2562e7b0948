from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fake_study import SPEC, trial, typical_trials, write_study

from kltune.report.answer import (
    answer_facts,
    headline,
)
from kltune.report.recommend import Recommendation, recommend
from kltune.report.rows import StudyRows, read_study
from kltune.trial.outcome import StopReason
from kltune.trial.words import both_units


def read(tmp_path: Path, *fakes: object, **spec: object) -> StudyRows:
    return read_study(write_study(tmp_path, list(fakes), **spec))  # type: ignore[arg-type]


def facts_of(study: StudyRows) -> dict[str, str]:
    found = recommend(study)
    assert isinstance(found, Recommendation)
    return dict(answer_facts(study, found))


def test_the_headline_names_setting_units_step_window_and_both_kls(tmp_path: Path) -> None:
    study = read(tmp_path, *typical_trials())
    found = recommend(study)
    assert isinstance(found, Recommendation)
    text = headline(study, found)
    for part in (
        "beta",
        "reward per nat of sequence KL",
        "stop ",
        "nats/token = ",
        "nats/sequence",
        "On the select prompts, one seed: gold ",
        "95 % interval",
    ):
        assert part in text


def test_the_headline_admits_ties(tmp_path: Path) -> None:
    wide = (0.2, *[0.8] * 8)
    study = read(tmp_path, trial(0.2, gold=wide), trial(0.5, gold=wide))
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert headline(study, found).endswith("Not told apart from 1 other setting.")
    alone = read(tmp_path / "alone", trial(0.2, gold=wide))
    single = recommend(alone)
    assert isinstance(single, Recommendation)
    assert "told apart" not in headline(alone, single)


def test_beta_zero_is_recommended_in_words_of_its_own(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.0, origin="zero"))
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert headline(study, found).startswith("Use no KL penalty (beta = 0)")
    assert facts_of(study)["In your framework"] == "KL coefficient 0"


def test_a_token_kl_is_shown_per_sequence_too(tmp_path: Path) -> None:
    # field case E2: at a mean length of 14 tokens
    study = read(tmp_path, trial(0.3))
    peak = study.trials[0].peak
    assert peak is not None
    assert peak.kl_seq == pytest.approx(14 * peak.kl_token)
    assert "nats/token" in facts_of(study)["Stop"]
    assert "nats/sequence" in facts_of(study)["Stop"]


def test_how_sure_says_that_seeds_were_not_repeated(tmp_path: Path) -> None:
    for number, fakes in enumerate(([trial(0.2)], [trial(0.2), trial(0.3)])):
        text = facts_of(read(tmp_path / str(number), *fakes))["How sure"]
        assert "not that of a fresh seed" in text


def test_a_tie_names_the_range_of_beta_and_the_rule(tmp_path: Path) -> None:
    wide = (0.2, *[0.8] * 8)
    text = facts_of(read(tmp_path, trial(0.2, gold=wide), trial(0.5, gold=wide)))["Tied"]
    assert "can't be told apart" in text
    assert "beta from 0.2 to 0.5 reward per nat of sequence KL" in text
    assert "holds its peak longest" in text


def test_under_gold_final_all_steps_are_to_be_run(tmp_path: Path) -> None:
    study = read(tmp_path, trial(0.3), objective={"metric": "gold_final", "kl_limit": 0.5})
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert "run all 80 steps" in headline(study, found)


def test_under_gold_final_the_kl_of_the_headline_is_that_of_the_end(tmp_path: Path) -> None:
    gold = (0.2, 0.9, *[0.5] * 7)
    objective = {"metric": "gold_final", "kl_limit": None}
    study = read(tmp_path, trial(0.3, gold=gold), objective=objective)
    found = recommend(study)
    assert isinstance(found, Recommendation)
    peak, final = found.best.peak, found.best.final
    assert peak is not None
    assert final is not None
    text = headline(study, found)
    assert f"at KL {both_units(final.kl_token, final.kl_seq)}." in text
    assert peak.step == 10


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"controller": "fixed"}, ", held fixed;"),
        ({"controller": "schedule"}, ", on its schedule;"),
        (
            {"controller": "threshold-1.5x", "target_kl": 0.05},
            ", steered to 0.05 nats/token (threshold-1.5x) (which never moved it);",
        ),
        (
            {"controller": "proportional", "target_kl": 0.05, "horizon": 640},
            ", steered to 0.05 nats/token (horizon 640 sequences);",
        ),
    ],
)
def test_the_headline_names_the_controller(
    tmp_path: Path, setting: dict[str, object], words: str
) -> None:
    study = read(tmp_path, trial(0.3, **setting))
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert words in headline(study, found)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (0.3, " (which never moved it);"),
        (0.31, " (which moved it by less than 10 %);"),
        (0.4, ";"),
    ],
)
def test_a_controller_that_did_nothing_gets_no_credit(
    tmp_path: Path, last: float, words: str
) -> None:
    study = read(tmp_path, trial(0.3, controller="threshold-1.5x", target_kl=0.05))
    found = recommend(study)
    assert isinstance(found, Recommendation)
    curve = dataclasses.replace(found.best.curve, beta=(*[0.3] * 79, last))
    moved = dataclasses.replace(found.best, curve=curve)
    text = headline(study, dataclasses.replace(found, best=moved))
    assert f"(threshold-1.5x){words}" in text


def test_prompts_that_do_not_differ_tell_nothing(tmp_path: Path) -> None:
    peaks = (0.2, *[0.5] * 8)
    study = read(tmp_path, trial(0.2, gold=peaks, value=0.7), trial(0.2, gold=peaks, value=0.4))
    (first, second) = study.trials
    same = dataclasses.replace(second, checkpoints=first.checkpoints, peak=first.peak)
    text = facts_of(dataclasses.replace(study, trials=(first, same)))["How sure"]
    assert "can't be told apart: only 0 of 64 prompts differ, so the prompts can't tell" in text


def test_under_length_mean_beta_is_per_nat_of_the_mean(tmp_path: Path) -> None:
    wide = (0.2, *[0.8] * 8)
    trainer = {**SPEC["trainer"], "kl": {"credit": "length-mean"}}
    paid = [trial(beta, gold=wide, penalty="k1-reward") for beta in (0.2, 0.5)]
    study = read(tmp_path, *paid, trainer=trainer)
    found = recommend(study)
    assert isinstance(found, Recommendation)
    unit = "reward per nat per token of mean KL"
    assert f"{unit}, held fixed" in headline(study, found)
    assert f"{unit}, fixed" in facts_of(study)["Setting"]
    assert f"to 0.5 {unit}. Of those" in facts_of(study)["Tied"]
    lossy = read(tmp_path / "loss", trial(0.2, gold=wide), trainer=trainer)
    assert "reward per nat of sequence KL, fixed" in facts_of(lossy)["Setting"]


def test_a_moving_reference_is_said_beside_the_setting(tmp_path: Path) -> None:
    assert "Reference" not in facts_of(read(tmp_path, trial(0.2)))
    trainer = {**SPEC["trainer"], "reference": {"every": 20, "mixture": 0.6}}
    text = facts_of(read(tmp_path / "moving", trial(0.2), trainer=trainer))["Reference"]
    assert "every 20 steps its trainable weights become 0.6 × the policy's + 0.4 × its own" in text
    assert "The KL shown is to the start" in text


def test_how_sure_says_how_many_may_be_the_best_and_what_is_given_up_at_most(
    tmp_path: Path,
) -> None:
    wide = (0.2, *[0.8] * 8)
    fakes = [*[trial(beta, gold=wide) for beta in (0.2, 0.5, 0.7)], trial(0.9, gold=(0.2,) * 9)]
    facts = facts_of(read(tmp_path, *fakes))
    assert (
        "3 of 4 settings can't be told apart from the best on these prompts, one seed."
        in (facts["How sure"])
    )
    assert "gold below it (95 % confidence)" in facts["How sure"]
    assert "told apart from the best the nearest is trial 3" in facts["How sure"]
    assert facts["Tied"].startswith("trials 0, 1, 2 can't be told apart on these prompts, one seed")


def test_how_sure_says_where_the_seeds_noise_was_measured(tmp_path: Path) -> None:
    wide = (0.2, *[0.8] * 8)
    repeats = [trial(0.0, origin=f"noise:{n}", seed=n, gold=wide) for n in range(1, 5)]
    text = facts_of(read(tmp_path, trial(0.0, origin="zero", gold=wide), *repeats, trial(0.4)))
    assert "measured on one setting with 5 seeds" in text["How sure"]
    assert "not that of a fresh seed" not in text["How sure"]


def test_a_winner_that_stands_alone_is_said_to(tmp_path: Path) -> None:
    fakes = [trial(0.2, gold=(0.2, *[0.9] * 8)), trial(0.9, gold=(0.2,) * 9)]
    facts = facts_of(read(tmp_path, *fakes))
    assert "It can be told apart from all others on these prompts, one seed." in facts["How sure"]
    assert "Tied" not in facts


def test_a_guards_stop_is_part_of_what_is_recommended(tmp_path: Path) -> None:
    ended = {"steps": 40, "reason": StopReason.GOLD_DROP, "detail": "gold fell"}
    for metric in ("gold_peak", "gold_mean"):
        path = tmp_path / metric
        write_study(path, [trial(0.1, **ended)], objective={"metric": metric})
        study = read_study(path)
        assert "ended by the guard gold_drop at step 40" in facts_of(study)["Stop"]
    found = recommend(study)
    assert isinstance(found, Recommendation)
    assert "run 40 steps, where the guard gold_drop ended it" in headline(study, found)
    write_study(tmp_path / "whole", [trial(0.1)], objective={"metric": "gold_peak"})
    assert "ended" not in facts_of(read_study(tmp_path / "whole"))["Stop"]


def test_a_target_that_kl_missed_is_said_in_the_headline_and_the_details(tmp_path: Path) -> None:
    given = {"controller": "proportional", "target_kl": 0.05, "horizon": 640}
    study = read(tmp_path, trial(0.1, **given))
    (row,) = study.trials
    num = len(row.curve.step)
    kl = tuple(0.05 if n < 40 else 0.08 for n in range(num))
    beta = tuple(0.1 + 0.01 * n for n in range(num))
    curve = dataclasses.replace(row.curve, kl_token=kl, beta=beta, target=(0.05,) * num)
    missed = dataclasses.replace(study, trials=(dataclasses.replace(row, curve=curve),))
    found = recommend(missed)
    assert isinstance(found, Recommendation)
    told = "(horizon 640 sequences), which KL missed (median over the trial's last 8 steps: 1.6 × that); stop"
    assert told in headline(missed, found)
    assert (
        "verdict: does not hold the target (KL was 1.6 × target, median over the trial's last 8 steps)"
        in facts_of(missed)["Controller"]
    )
