from __future__ import annotations

from pathlib import Path

from fake_study import trial, typical_trials, write_study

from kltune.report.recommend import Answer, NoAnswer, Recommendation, recommend
from kltune.report.rows import read_study
from kltune.trial.outcome import StopReason

NARROW = (0.2, 0.4, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
WIDE = (0.2, 0.4, 0.88, 0.88, 0.87, 0.88, 0.87, 0.88, 0.87)
LOW = (0.2, 0.25, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3)


def answer_of(tmp_path: Path, *fakes: object, **spec: object) -> Answer:
    return recommend(read_study(write_study(tmp_path, list(fakes), **spec)))  # type: ignore[arg-type]


def found(tmp_path: Path, *fakes: object, **spec: object) -> Recommendation:
    answer = answer_of(tmp_path, *fakes, **spec)
    assert isinstance(answer, Recommendation)
    return answer


def refused(tmp_path: Path, *fakes: object, **spec: object) -> NoAnswer:
    answer = answer_of(tmp_path, *fakes, **spec)
    assert isinstance(answer, NoAnswer)
    return answer


def test_a_clear_winner_is_recommended(tmp_path: Path) -> None:
    answer = found(tmp_path, trial(0.2, gold=LOW), trial(0.2, gold=WIDE))
    assert answer.best.number == 1
    assert answer.tied == ()
    assert answer.runner_up is not None
    assert answer.runner_up.row.number == 0
    assert answer.runner_up.difference is not None
    assert answer.runner_up.difference.is_told_apart


def test_among_ties_the_wider_plateau_wins(tmp_path: Path) -> None:
    answer = found(tmp_path, trial(1.0, gold=NARROW, value=0.9), trial(1.0, gold=WIDE, value=0.88))
    assert answer.highest.number == 0
    assert [row.number for row in answer.tied] == [1]
    assert answer.best.number == 1
    assert answer.plateau.width == 7


def test_a_wide_plateau_that_is_clearly_lower_does_not_win(tmp_path: Path) -> None:
    answer = found(tmp_path, trial(1.0, gold=NARROW), trial(1.0, gold=LOW))
    assert answer.best.number == 0


def test_only_complete_trials_are_recommended(tmp_path: Path) -> None:
    # field case B27: PRUNED at .9, COMPLETE .7
    pruned = trial(0.2, gold=(0.2, 0.9, 0.9), steps=20, reason=StopReason.PRUNED)
    complete = trial(0.2, gold=(0.2, *[0.7] * 8))
    assert found(tmp_path, pruned, complete).best.number == 1


def test_a_trial_over_the_limit_loses_to_a_feasible_one(tmp_path: Path) -> None:
    over = trial(0.0, value=5.0)
    held = trial(1.0, gold=LOW)
    answer = found(tmp_path, over, held, objective={"kl_limit": 0.035})
    assert answer.best.number == 1


def test_every_baseline_is_compared_even_where_it_is_infeasible(tmp_path: Path) -> None:
    zero = trial(0.0, origin="zero")
    recipe = trial(0.5, origin="baseline:verl-ppo", gold=LOW)
    answer = found(tmp_path, zero, recipe, trial(1.0, gold=WIDE), objective={"kl_limit": 0.035})
    assert [v.row.number for v in answer.baselines] == [0, 1]
    assert answer.baselines[0].row.is_feasible is False


def test_no_trial_at_all_is_an_answer(tmp_path: Path) -> None:
    answer = refused(tmp_path)
    assert "No trial has started" in answer.reason
    assert not answer.is_final


def test_running_trials_alone_give_no_answer_yet(tmp_path: Path) -> None:
    answer = refused(tmp_path, trial(0.1, steps=30, reason=None))
    assert "No trial has ended yet (1 started)" in answer.reason


def test_no_feasible_trial_says_by_how_much_and_what_to_change(tmp_path: Path) -> None:
    answer = refused(
        tmp_path,
        trial(0.0),
        trial(0.002),
        objective={"kl_limit": 1e-3},
        budget={"trials": 2},
        baselines=[],
        search={"beta": {"log": [1e-3, 1]}},
    )
    text = " ".join(answer.advice)
    assert answer.is_final
    assert "the limit is 0.001 nats/token" in text
    assert "lower evaluate.every" in text
    assert "search.beta" in text
    assert "largest beta tried: 0.002" in text


def test_failures_alone_show_the_first_reason(tmp_path: Path) -> None:
    fake = trial(0.1, reason=StopReason.ERROR, steps=3, detail="ValueError: 63 scores")
    answer = refused(tmp_path, fake, fake)
    assert "2 of 2 trials failed" in answer.reason
    assert "ValueError: 63 scores" in answer.advice[0]


def test_pruned_trials_alone_point_to_the_pruner(tmp_path: Path) -> None:
    fake = trial(0.1, reason=StopReason.PRUNED, steps=40, detail="beaten")
    assert "pruning" in refused(tmp_path, fake).advice[0]


def test_interrupted_trials_alone_point_to_the_same_command(tmp_path: Path) -> None:
    fake = trial(0.1, reason=StopReason.INTERRUPTED, steps=40, detail="SIGTERM")
    assert "checkpoints" in refused(tmp_path, fake).advice[0]


def test_a_typical_study_has_a_winner_that_beats_beta_zero(tmp_path: Path) -> None:
    answer = found(tmp_path, *typical_trials())
    zero = next(v for v in answer.baselines if v.row.origin == "zero")
    assert zero.difference is not None
    assert zero.difference.low > 0


def test_a_repeat_on_another_seed_is_never_recommended_nor_compared(tmp_path: Path) -> None:
    zero = trial(0.0, origin="zero", gold=WIDE)
    repeat = trial(0.0, origin="noise:1", seed=1, gold=NARROW, value=9.0)
    answer = found(tmp_path, zero, repeat, trial(1.0, gold=LOW))
    assert answer.best.number == 0
    assert answer.highest.number == 0
    assert 1 not in [row.number for row in answer.tied]
    assert answer.runner_up is None or answer.runner_up.row.number == 2
    assert answer.baselines == ()


def test_settings_that_may_be_the_best_too_are_listed_by_number(tmp_path: Path) -> None:
    values = (0.88, 0.90, 0.89, 0.87)
    answer = found(tmp_path, *[trial(1.0, gold=WIDE, value=value) for value in values])
    assert answer.highest.number == 1
    assert [row.number for row in answer.tied] == [0, 2, 3]
    assert answer.runner_up is None


def test_a_baseline_in_the_best_group_is_not_called_told_apart(tmp_path: Path) -> None:
    golds = [(0.2, *[0.9 - 0.03 * n] * 8) for n in range(8)]
    answer = found(tmp_path, *[trial(1.0, gold=g, origin="baseline:verl-ppo") for g in golds])
    group = {row.number for row in answer.ranking.groups[0]}
    for versus in answer.baselines:
        assert versus.difference is not None
        if versus.row.number in group and answer.best.number in group:
            assert not versus.difference.is_told_apart
