from __future__ import annotations

import optuna
import pytest

from kltune.spec.objective import ObjectiveSpec
from kltune.spec.study import PruningSpec
from kltune.spec.trial import KLUnit
from kltune.study.lives import ATTR_ORIGIN
from kltune.study.pruner import (
    ATTR_EVALS,
    Peers,
    Standing,
    as_judged,
    is_warm,
    judge_against_peers,
    pack_standings,
    standings_at,
)
from kltune.trial.objective import EvalPoint, judge_trial
from kltune.trial.outcome import StopReason, Verdict

PRUNING = PruningSpec(peers=3)
FINAL = ObjectiveSpec(metric="gold_final")
PEERS = [Standing(0.6, 0.2, 0.02), Standing(0.7, 0.3, 0.02), Standing(0.8, 0.4, 0.02)]


def judge(gold: float, kl: float, peers: list[Standing] = PEERS) -> Verdict | None:
    return judge_against_peers(Standing(gold, kl, 0.05), peers, 40, PRUNING, KLUnit.TOKEN)


def test_lower_gold_at_no_lower_kl_is_beaten_and_says_by_what() -> None:
    assert judge(0.5, 0.3) == Verdict(
        StopReason.PRUNED,
        "gold of the last two evaluations 0.500 ± 0.050 < 0.700, the median of 3 trials at step 40, "
        "with kl 0.3 ≥ their 0.3 nats/token",
    )


def test_a_slow_trial_with_lower_kl_is_not_pruned() -> None:
    assert judge(0.1, 0.29) is None


def test_a_difference_within_the_trials_own_standard_error_is_none() -> None:
    assert judge(0.66, 0.5) is None
    assert judge(0.64, 0.5) is not None


def test_too_few_peers_prune_nothing() -> None:
    assert judge(0.1, 0.9, PEERS[:2]) is None


def test_pruning_can_be_switched_off() -> None:
    off = PruningSpec(peers=3, enabled=False)
    assert judge_against_peers(Standing(0, 9, 0), PEERS, 40, off, KLUnit.TOKEN) is None


def test_nothing_is_pruned_before_the_warm_up_share() -> None:
    assert not is_warm(39, 100, PruningSpec(warmup=0.4))
    assert is_warm(40, 100, PruningSpec(warmup=0.4))


def gold_of_a_setting(speed: float, step: int) -> float:
    """Over-optimisation in one line: gold rises, peaks when speed x step is 40, and falls."""
    x = speed * step / 40
    return 2 * x - x * x


def kl_of_a_setting(speed: float, step: int) -> float:
    return speed * step / 100


def test_the_best_at_the_end_that_starts_slowest_is_never_pruned() -> None:
    speeds = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0]  # 0.5 is best at step 80, worst at step 10
    ends = {speed: gold_of_a_setting(speed, 80) for speed in speeds}
    assert max(ends, key=lambda speed: ends[speed]) == 0.5
    pruning = PruningSpec(peers=5)
    for step in range(10, 81, 10):
        at = {
            s: Standing(gold_of_a_setting(s, step), kl_of_a_setting(s, step), 0.0) for s in speeds
        }
        peers = [at[s] for s in speeds if s != 0.5]
        verdict = judge_against_peers(at[0.5], peers, step, pruning, KLUnit.TOKEN)
        assert verdict is None, step
    fastest = [at[s] for s in speeds if s != 5.0]
    assert judge_against_peers(at[5.0], fastest, 80, pruning, KLUnit.TOKEN) is not None


def test_a_standing_is_what_the_objective_makes_of_the_evaluations_so_far() -> None:
    golds = {0: 0.9, 10: 0.5, 20: 0.7, 30: 0.8, 40: 0.2}
    kls = {0: 0.0, 10: 0.1, 20: 0.2, 30: 0.6, 40: 0.3}
    standings = {step: Standing(golds[step], kls[step], step / 100) for step in golds}

    def seen(metric: str, limit: float | None = 0.5) -> list[float]:
        objective = ObjectiveSpec.model_validate({"metric": metric, "kl_limit": limit})
        judged = as_judged(standings, objective)
        assert [judged[step].kl for step in golds] == list(kls.values())
        return [judged[step].gold for step in golds]

    assert seen("gold_peak") == [
        0.9,
        0.5,
        0.7,
        0.7,
        0.7,
    ]  # neither step 0 nor what is over the limit
    assert seen("gold_peak", None) == [0.9, 0.5, 0.7, 0.8, 0.8]
    areas = [0.7, (0.7 + 0.6) / 2, (0.7 + 0.6 + 0.75) / 3, (0.7 + 0.6 + 0.75 + 0.5) / 4]
    assert seen("gold_mean") == pytest.approx([0.9, *areas])
    assert seen("gold_final") == pytest.approx([0.9, 0.5, 0.6, 0.75, 0.5])


@pytest.mark.parametrize("metric", ["gold_final", "gold_mean"])
def test_a_trial_is_pruned_by_the_very_number_that_it_would_be_told_with(metric: str) -> None:
    golds = {0: 0.9, 10: 0.5, 20: 0.7, 40: 0.8, 50: 0.2}
    objective = ObjectiveSpec.model_validate({"metric": metric, "kl_limit": 0.5})
    judged = as_judged({step: Standing(g, 0.1, 0.05) for step, g in golds.items()}, objective)
    for step, standing in judged.items():
        points = [EvalPoint(s, (g,), 0.1, 1.0) for s, g in golds.items() if s <= step]
        worth = judge_trial(points, objective, KLUnit.TOKEN, step, 50)
        assert standing.gold == worth.value


def test_the_verdict_says_which_gold_was_compared() -> None:
    verdict = judge_against_peers(
        Standing(0.5, 0.3, 0.05), PEERS, 40, PRUNING, KLUnit.TOKEN, "gold_peak"
    )
    assert verdict is not None
    assert verdict.detail.startswith("best gold so far 0.500 ± 0.050 < 0.700, the median")


@pytest.fixture
def study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize")


def add(
    study: optuna.Study, gold: float, state: str, constraint: float = -1.0, origin: str = "tpe"
) -> None:
    trial = study.ask()
    trial.set_user_attr(ATTR_ORIGIN, origin)
    trial.report(gold, 40)
    trial.set_user_attr(ATTR_EVALS, pack_standings({40: Standing(gold, 0.1, 0.02)}))
    if state != "RUNNING":
        trial.set_constraint("kl", constraint)
        value = gold if state == "COMPLETE" else None
        study.tell(trial, value, state=optuna.trial.TrialState[state])


def test_peers_are_running_complete_and_pruned_trials_that_reported_the_step(
    study: optuna.Study,
) -> None:
    add(study, 0.1, "COMPLETE")
    add(study, 0.2, "PRUNED")
    add(study, 0.3, "RUNNING")
    add(study, 0.4, "FAIL")
    add(study, 0.5, "COMPLETE", constraint=0.3)
    add(study, 0.6, "COMPLETE", origin="noise:1")
    trials = study.get_trials()
    assert [peer.gold for peer in standings_at(40, trials, FINAL)] == [0.1, 0.2, 0.3]
    assert standings_at(50, trials, FINAL) == []


class CountedAttrs(dict[str, object]):
    """User attributes that count how often the standings in them were looked up."""

    reads = 0

    def get(self, key: str, default: object = None) -> object:
        self.reads += key == ATTR_EVALS
        return super().get(key, default)


def kept_trial(
    number: int, state: optuna.trial.TrialState, gold: float, constraint: float = -1.0
) -> optuna.trial.FrozenTrial:
    standings = {40: Standing(gold, 0.2, 0.02), 50: Standing(gold + 0.1, 0.3, 0.02)}
    trial = optuna.trial.create_trial(
        state=state,
        value=gold if state is optuna.trial.TrialState.COMPLETE else None,
        user_attrs=CountedAttrs({ATTR_EVALS: pack_standings(standings)}),
        system_attrs={"constraints:kl": constraint},
    )
    trial.number = number
    return trial


def reads_of(trials: list[optuna.trial.FrozenTrial]) -> list[int]:
    return [attrs.reads for t in trials if isinstance(attrs := t.user_attrs, CountedAttrs)]


def test_peers_are_those_of_a_fresh_look_however_the_study_goes_on() -> None:
    state = optuna.trial.TrialState
    study = [
        kept_trial(0, state.COMPLETE, 0.6),
        kept_trial(1, state.PRUNED, 0.5),
        kept_trial(2, state.COMPLETE, 0.9, constraint=0.3),
        kept_trial(3, state.FAIL, 0.1),
        kept_trial(4, state.RUNNING, 0.7),
    ]
    peers = Peers(FINAL)
    for latest in (study, [*study[:4], kept_trial(4, state.PRUNED, 0.2)]):
        for step in (40, 50, 60):
            seen = peers.standings_at(step, latest)
            expected = standings_at(step, latest, FINAL)
            assert sorted(s.gold for s in seen) == sorted(s.gold for s in expected)


def test_a_trial_that_is_over_is_read_once_however_often_its_peers_are_judged() -> None:
    state = optuna.trial.TrialState
    trials = [kept_trial(n, state.COMPLETE, 0.1 * n) for n in range(5)]
    running = kept_trial(5, state.RUNNING, 0.4)
    peers = Peers(FINAL)
    for step in (40, 50, 40):
        peers.standings_at(step, [*trials, running])
    assert reads_of(trials) == [1] * 5
    assert reads_of([running]) == [3]
