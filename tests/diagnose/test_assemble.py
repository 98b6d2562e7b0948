from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from kltune.diagnose.assemble import to_run_log
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.sources.raw import RawRun
from kltune.spec.trial import KLUnit
from kltune.symptoms.curve import Quantity

_TRL = {"completions/mean_length": 40.0}
_OPENRLHF = {"actor_lr": 1e-6, "response_length": 200.0}


def _run(
    rows: list[Mapping[str, float]],
    kl_unit: KLUnit | None = None,
    mean_tokens: float | None = None,
    facts: Mapping[str, object] | None = None,
    framework: str = "",
) -> RunLog:
    numbered = tuple((step, dict(row)) for step, row in enumerate(rows, start=1))
    return to_run_log(RawRun("x", "test", numbered, framework, facts or {}), kl_unit, mean_tokens)


def test_a_log_without_kl_has_no_kl_of_zero() -> None:
    run = _run([{**_TRL, "reward": 1.0}] * 3)
    assert not {Quantity.KL_TOKEN, Quantity.KL_SEQ} & set(run.curve.values)
    assert any("not known, which is not the same as 0" in note for note in run.notes)


def test_zeros_of_a_trainer_without_a_reference_are_not_measured() -> None:
    run = _run([{**_OPENRLHF, "kl": 0.0}] * 3)
    assert Quantity.KL_TOKEN not in run.curve.values
    assert any("exactly 0 at all of its 3 steps" in note for note in run.notes)


def test_a_kl_that_is_zero_only_at_first_is_measured() -> None:
    run = _run([{**_OPENRLHF, "kl": value} for value in (0.0, 0.0, 0.01)])
    assert run.curve.values[Quantity.KL_TOKEN] == (0.0, 0.0, 0.01)


def test_zeros_of_trl_are_a_measurement() -> None:
    run = _run([{**_TRL, "kl": 0.0}] * 3)
    assert run.curve.values[Quantity.KL_TOKEN] == (0.0, 0.0, 0.0)


def test_both_units_travel_together() -> None:
    run = _run([{"kl": 0.05, "completions/mean_length": length} for length in (40.0, 80.0)])
    assert run.curve.values[Quantity.KL_SEQ] == (2.0, 4.0)
    reading = run.readings[Quantity.KL_SEQ]
    assert (reading.unit, reading.why) == ("nats/sequence", "kl x completions/mean_length")


def test_a_mean_over_sequences_is_converted_with_a_caution() -> None:
    row = {"actor/reward_kl_penalty": 0.05, "response_length/mean": 100.0}
    run = _run([row, row], framework="verl")
    assert run.curve.values[Quantity.KL_SEQ] == (5.0, 5.0)
    assert "near, not exact, where lengths vary" in run.readings[Quantity.KL_SEQ].why
    assert "near" not in run.readings[Quantity.KL_TOKEN].why


def test_a_summed_kl_becomes_one_per_token() -> None:
    rows = [{"objective/kl": 6.0, "ppo/mean_scores": 1.0, "tokens/responses_len_mean": 24.0}]
    run = _run(rows)
    assert run.curve.values[Quantity.KL_TOKEN] == (0.25,)
    assert run.curve.values[Quantity.K1_SEQ] == (6.0,)
    assert run.curve.values[Quantity.K1_TOKEN] == (0.25,)


def test_a_kl_below_zero_in_a_trl_log_is_rloos_k1() -> None:
    run = _run([{**_TRL, "kl": value} for value in (0.0, -0.001, 0.002)])
    assert run.readings[Quantity.KL_TOKEN].estimator == "k1"
    assert run.curve.values[Quantity.K1_TOKEN] == (0.0, -0.001, 0.002)


def test_a_k3_is_never_read_as_the_signed_log_ratio() -> None:
    # Field case A2: a positive k3 says nothing of a negative mean.
    run = _run([{**_TRL, "kl": 0.02}] * 3)
    assert run.readings[Quantity.KL_TOKEN].estimator == "k3"
    assert Quantity.K1_TOKEN not in run.curve.values


def test_an_unknown_kl_is_inferred_and_told() -> None:
    run = _run([{"kl": 0.05, "length": 400.0}] * 3)
    reading = run.readings[Quantity.KL_TOKEN]
    assert (reading.unit, reading.is_certain) == ("nats/token", False)
    assert "by its size" in reading.why
    assert run.curve.values[Quantity.KL_SEQ] == (20.0, 20.0, 20.0)
    assert run.readings[Quantity.KL_SEQ].is_certain is False


def test_an_unknown_kl_that_fits_both_units_is_refused_into_the_notes() -> None:
    run = _run([{"kl": 0.3, "length": 12.0}] * 3)
    assert not {Quantity.KL_TOKEN, Quantity.KL_SEQ} & set(run.curve.values)
    assert any("--kl-unit token or --kl-unit sequence" in note for note in run.notes)


def test_the_flag_decides_an_unknown_unit() -> None:
    run = _run([{"kl": 0.3, "length": 12.0}], KLUnit.SEQUENCE)
    assert run.curve.values[Quantity.KL_SEQ] == (0.3,)
    assert run.curve.values[Quantity.KL_TOKEN] == (pytest.approx(0.025),)
    assert run.readings[Quantity.KL_SEQ].why == "as --kl-unit sequence says"


def test_the_flag_overrides_a_definition_and_says_so() -> None:
    run = _run([{**_TRL, "kl": 4.0}], KLUnit.SEQUENCE)
    assert run.curve.values[Quantity.KL_SEQ] == (4.0,)
    assert any("--kl-unit sequence counts" in note for note in run.notes)


def test_a_given_length_serves_a_log_without_one() -> None:
    run = _run([{"kl": 0.05}], mean_tokens=400.0)
    assert run.curve.values[Quantity.KL_SEQ] == (20.0,)


def test_a_token_mean_beyond_the_vocabulary_is_doubted() -> None:
    run = _run([{**_OPENRLHF, "kl": value} for value in (0.0, 40.0)])
    assert any("say --kl-unit sequence" in note for note in run.notes)


def test_an_update_kl_fills_no_reference_kl() -> None:
    # Field case E6: two KLs, two names.
    run = _run([{"actor/ppo_kl": 0.02, "critic/score/mean": 1.0}] * 2)
    assert run.curve.values[Quantity.UPDATE_KL_TOKEN] == (0.02, 0.02)
    assert Quantity.KL_TOKEN not in run.curve.values


@pytest.mark.parametrize(
    ("mode", "quantity"),
    [
        ("token-mean", Quantity.KL_TOKEN),
        ("seq-mean-token-mean", Quantity.KL_TOKEN),
        ("seq-mean-token-sum", Quantity.KL_SEQ),
    ],
)
def test_verls_aggregation_decides_the_unit_of_its_kl_loss(mode: str, quantity: Quantity) -> None:
    rows = [{"actor/kl_loss": 0.5, "response_length/mean": 100.0}] * 2
    run = _run(rows, facts={"actor_rollout_ref/actor/loss_agg_mode": mode}, framework="verl")
    assert run.curve.values[quantity] == (0.5, 0.5)
    assert run.readings[quantity].is_certain


def test_verls_divided_sum_is_in_neither_unit() -> None:
    mode = {"actor_rollout_ref/actor/loss_agg_mode": "seq-mean-token-sum-norm"}
    rows = [{"actor/kl_loss": 0.05, "response_length/mean": 100.0}] * 2
    run = _run(rows, facts=mode, framework="verl")
    assert Quantity.KL_TOKEN not in run.curve.values
    assert any("actor/kl_loss was left out" in note for note in run.notes)


def test_verls_estimator_is_that_of_its_settings() -> None:
    settings = {"actor_rollout_ref/actor/kl_loss_type": "mse"}
    run = _run([{"actor/kl_loss": 0.1}], facts=settings, framework="verl")
    assert run.readings[Quantity.KL_TOKEN].estimator == "k2"


def test_of_two_sources_the_better_one_counts_and_the_other_is_named() -> None:
    row = {"objective/kl0_avg": 0.1, "objective/kl2_avg": 0.2}
    run = _run([row, row])
    assert run.curve.values[Quantity.KL_TOKEN] == (0.2, 0.2)
    assert run.curve.values[Quantity.K1_TOKEN] == (0.1, 0.1)
    assert any("objective/kl2_avg is the better source" in note for note in run.notes)


def test_a_number_that_is_none_is_seen_as_infinite() -> None:
    run = _run([{**_TRL, "loss": value} for value in (0.1, math.nan, math.nan)])
    assert run.curve.values[Quantity.LOSS] == (0.1, math.inf, math.inf)
    assert any("loss is NaN at 2 steps (2, 3)" in note for note in run.notes)


def test_nan_between_numbers_of_a_sparse_column_is_a_gap() -> None:
    values = (math.nan, math.nan, 0.5, math.nan, math.nan, 0.6)
    run = _run([{"gold": value, "loss": 0.1} for value in values])
    assert run.curve.known(Quantity.GOLD) == [(3, 0.5), (6, 0.6)]
    assert not any(math.isinf(value) for value in run.curve.values[Quantity.GOLD])


def test_an_undefined_share_is_no_fault() -> None:
    rows = [{"critic/vf_explained_var": math.nan, "critic/score/mean": 1.0}] * 2
    assert Quantity.EXPLAINED_VARIANCE not in _run(rows).curve.values


def test_a_gold_that_is_the_training_reward_is_no_gold() -> None:
    rows = [{**_TRL, "reward": x, "rewards/gold/mean": x} for x in (0.1, 0.2)]
    run = _run(rows)
    assert Quantity.GOLD not in run.readings
    assert Quantity.GOLD not in run.curve.values
    assert any("it is no gold" in note for note in run.notes)
    other = _run([{**row, "rewards/gold/mean": 0.3} for row in rows])
    assert other.curve.values[Quantity.GOLD] == (0.3, 0.3)


def test_names_that_nothing_was_made_of_are_listed() -> None:
    run = _run([{**_TRL, "kl": 0.1, "perf/mfu": 0.4}])
    assert run.ignored == ("perf/mfu",)


def test_a_studys_units_stand_in_its_readings() -> None:
    facts = {"kl_unit": "sequence", "beta_unit": "reward"}
    row = {"kl/exact_token": 0.1, "ctrl/target": 2.0, "ctrl/beta": 0.1}
    run = _run([row], facts=facts, framework="kltune")
    assert run.readings[Quantity.TARGET].unit == "nats/sequence"
    assert run.readings[Quantity.BETA].unit == "reward"


def test_the_flag_leaves_a_studys_own_record_alone() -> None:
    row = {"kl/exact_token": 0.1, "kl/exact_seq": 1.0}
    run = _run([row], KLUnit.TOKEN, framework="kltune")
    assert run.curve.values[Quantity.KL_SEQ] == (1.0,)
    assert any("--kl-unit changes nothing" in note for note in run.notes)


def test_a_kl_of_unknown_unit_is_not_called_unlogged() -> None:
    run = _run([{"kl": 0.05, "reward": 1.0}, {"kl": 4.9, "reward": 1.1}])
    assert "--kl-unit token or --kl-unit sequence" in run.unread_kl["kl"]
    assert not any("no KL to the reference was read" in note for note in run.notes)
    told = _run([{"kl": 0.05, "reward": 1.0}, {"kl": 4.9, "reward": 1.1}], kl_unit=KLUnit.TOKEN)
    assert told.unread_kl == {}


def test_a_kl_of_words_is_said_to_be_one() -> None:
    raw = RawRun("x", "test", ((1, {"reward": 1.0}),), texts={"kl": "row 1: 'hello'", "host": "a"})
    run = to_run_log(raw, None, None)
    assert run.unread_kl == {"kl": "kl holds no number (row 1: 'hello')"}
    assert "kl was left out: it holds no number (row 1: 'hello')" in run.notes
    assert not any("host" in note for note in run.notes)


def test_a_word_among_numbers_is_a_note() -> None:
    rows = ((1, {**_TRL, "kl": 0.1}),)
    run = to_run_log(RawRun("x", "test", rows, texts={"kl": "row 2: '-'"}), None, None)
    assert run.unread_kl == {}
    assert any("kl is not a number everywhere (row 2: '-')" in note for note in run.notes)


def test_what_is_not_used_is_said() -> None:
    row = {
        **_TRL,
        "kl": 0.1,
        "reward": 1.0,
        "rewards/gold/mean": 0.5,
        "eval_rewards/gold/mean": 0.4,
    }
    run = _run([{**row, "my_judge": 1.0, "host": 3.0}, {**row, "reward": 2.0}])
    assert run.readings[Quantity.GOLD].name == "eval_rewards/gold/mean"
    assert (
        "rewards/gold/mean was left out: eval_rewards/gold/mean is the better source" in run.notes
    )
    assert "my_judge was left out: not a name that kltune knows" in run.notes


def test_a_restart_travels_with_the_run() -> None:
    raw = RawRun("x", "test", ((1, {"kl": 0.1}),), restart="5 steps were logged again")
    assert to_run_log(raw, None, None).restart == "5 steps were logged again"
