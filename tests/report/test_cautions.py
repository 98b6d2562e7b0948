from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from fake_study import trial, write_study

from kltune.report.cautions import cautions
from kltune.report.recommend import recommend
from kltune.report.rows import StudyRows, read_study
from kltune.trial.outcome import StopReason


def text_of(study: StudyRows) -> str:
    return " ".join(cautions(study, recommend(study)))


def test_a_pruned_trial_above_the_best_is_shown(tmp_path: Path) -> None:
    # field case B27
    pruned = trial(0.2, gold=(0.2, 0.9, 0.9), steps=20, reason=StopReason.PRUNED, detail="beaten")
    complete = trial(0.2, gold=(0.2, *[0.7] * 8))
    text = text_of(read_study(write_study(tmp_path, [pruned, complete])))
    assert "Pruned trial 0 was higher at its best evaluation (gold 0.900" in text


def test_a_penalty_that_drowns_the_reward_is_warned_of(tmp_path: Path) -> None:
    # field case E3
    study = read_study(write_study(tmp_path, [trial(0.1)]))
    (row,) = study.trials
    curve = dataclasses.replace(row.curve, beta=(0.1,) * 80, kl_seq=(5.0,) * 80)
    drowned = dataclasses.replace(row, sigma_r=1e-4, curve=curve)
    assert "5,000 times the spread" in text_of(dataclasses.replace(study, trials=(drowned,)))
    assert text_of(study) == ""


def test_a_loss_that_rises_from_zero_is_no_failure(tmp_path: Path) -> None:
    # field cases A34 and E4: the fake's loss rises at every step
    assert text_of(read_study(write_study(tmp_path, [trial(0.2)]))) == ""


def test_an_answer_from_an_unfinished_study_says_so(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1), trial(0.2, steps=30, reason=None)]))
    assert "Trials that have not ended: 1 (no process is known to run them" in text_of(study)
    at_work = dataclasses.replace(study, is_running=True)
    assert "Trials that have not ended: 1; this" in text_of(at_work)


def test_a_trial_whose_folder_is_gone_is_named(tmp_path: Path) -> None:
    study = write_study(tmp_path, [trial(0.1), trial(0.2), trial(0.3)])
    assert "Missing" not in text_of(read_study(study))
    shutil.rmtree(study / "trials" / "00001")
    assert "trial 1. What is gone counts" in text_of(read_study(study))


def test_a_warning_of_the_recommended_trial_counts_up_to_where_it_is_stopped(
    tmp_path: Path,
) -> None:
    gold = (0.2, 0.7, 0.9, *[0.1] * 6)
    early = trial(0.1, gold=gold, warnings=[("truncation", 20, "60 % cut")])
    late = trial(0.1, gold=gold, warnings=[("truncation", 70, "60 % cut")])
    told = text_of(read_study(write_study(tmp_path / "early", [early])))
    assert "The guard truncation warned of the recommended trial at step 20: 60 % cut." in told
    assert text_of(read_study(write_study(tmp_path / "late", [late]))) == ""


def test_a_negative_kl_puts_every_number_in_doubt(tmp_path: Path) -> None:
    faulty = trial(0.2, steps=9, reason=StopReason.NEGATIVE_KL, detail="k1 -0.9 nats/sequence")
    told = text_of(read_study(write_study(tmp_path, [trial(0.1), faulty, faulty])))
    assert "ended trials 1, 2: k1 -0.9 nats/sequence. A clearly negative KL is a fault" in told


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "train/penalty_clipped_frac",
            "trainer.kl.clip held the KL of 2 % of the tokens (trial 0).",
        ),
        ("train/score_clipped_frac", "trainer.reward.clip held 2 % of the scores (trial 0)."),
        ("train/unscored_frac", "The proxy could not score 2 % of the completions (trial 0)."),
        ("ctrl/at_bound", "control.beta_min or beta_max held beta in 2 % of the steps (trial 0)."),
    ],
)
def test_nothing_is_clipped_bounded_or_left_unscored_in_silence(
    tmp_path: Path, name: str, text: str
) -> None:
    folder = write_study(tmp_path, [trial(0.1)])
    assert text_of(read_study(folder)) == ""
    path = folder / "trials" / "00000" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text(
        "".join(json.dumps({**row, name: 0.02}) + "\n" for row in rows), encoding="utf-8"
    )
    assert text in text_of(read_study(folder))


def test_a_biased_penalty_is_not_recommended_without_its_reason(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.2, penalty="k3-reward")], allow_biased=True))
    assert (
        "The recommended penalty is biased (allow_biased): k3 in the reward has a wrong gradient "
        "(it can point away from the reference). Gradient of k3-reward: reverse - forward KL."
    ) in text_of(study)


def test_many_pruned_trials_above_the_best_are_one_sentence(tmp_path: Path) -> None:
    ended = {"steps": 20, "reason": StopReason.PRUNED, "detail": "beaten"}
    pruned = [trial(0.2, gold=(0.2, gold, gold), **ended) for gold in (0.9, 1.1, 1.0)]
    complete = trial(0.2, gold=(0.2, *[0.7] * 8))
    study = read_study(write_study(tmp_path, [*pruned, complete]))
    (text,) = cautions(study, recommend(study))
    assert text.startswith("3 pruned trials were higher at their best evaluation")
    assert "the highest of them trial 1 (gold 1.100" in text


def test_many_drowned_trials_are_one_sentence(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, [trial(0.1), trial(0.1)]))
    curve = dataclasses.replace(study.trials[0].curve, beta=(0.1,) * 80, kl_seq=(5.0,) * 80)
    drowned = tuple(
        dataclasses.replace(row, sigma_r=sigma, curve=curve)
        for row, sigma in zip(study.trials, (1e-3, 1e-4), strict=True)
    )
    texts = cautions(dataclasses.replace(study, trials=drowned), recommend(study))
    (text,) = [t for t in texts if "times the spread" in t]
    assert text.startswith("In 2 trials, most in trial 1, the mean KL penalty is 5,000 times")


def test_a_controller_that_missed_its_target_is_warned_of_on_the_first_screen(
    tmp_path: Path,
) -> None:
    given = {"controller": "proportional", "target_kl": 0.05, "horizon": 640}
    study = read_study(write_study(tmp_path, [trial(0.1, **given)]))
    (row,) = study.trials
    steps = len(row.curve.step)

    def ended_at(ratio: float) -> StudyRows:
        kl = tuple(0.05 * (1 if n < 40 else ratio) for n in range(steps))
        beta = tuple(0.1 + 0.01 * n for n in range(steps))
        curve = dataclasses.replace(row.curve, kl_token=kl, beta=beta, target=(0.05,) * steps)
        return dataclasses.replace(study, trials=(dataclasses.replace(row, curve=curve),))

    text = text_of(ended_at(1.6))
    assert "The controller of trial 0 did not keep KL at its target of 0.05 nats/token" in text
    assert "KL was 1.6 × target, median over the trial's last 8 steps" in text
    assert "did not keep KL" not in text_of(ended_at(1.1))
