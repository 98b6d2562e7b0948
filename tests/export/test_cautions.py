from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from export_case import target, winner

from kltune.export.cautions import (
    cautions,
    gold_words,
    heading,
    last_step_words,
    limit_of,
    outlook,
    stop_words,
    updates_per_rollout,
)
from kltune.export.key import Exported
from kltune.export.nemo_rl import export_nemo_rl
from kltune.export.openrlhf import export_openrlhf
from kltune.export.setting import Winner
from kltune.export.target import Target
from kltune.export.trl import export_trl
from kltune.spec.trial import BetaUnit, KLUnit


def test_the_heading_says_what_it_is_worth_and_when_to_stop() -> None:
    text = "\n".join(heading(winner(), target(winner(), "verl")))
    for part in (
        "verl 0.9.0, exported by kltune from study kitchen, trial 7 (recommended; Sobol point)",
        "k2-loss, beta 0.1 reward per nat of sequence KL",
        "tag v0.9.0",
        "expected gold: 1.100 (95 % interval 1.000 to 1.200), 0.200 before training",
        "between steps 30 and 50 of 80",
        "at KL 0.1 nats/token = 2.4 nats/sequence",
        "hard KL limit: 0.5 nats/token = 12 nats/sequence at a mean of 24 tokens",
        "how sure: not confirmed",
    ):
        assert part in text


def test_the_hard_limit_is_the_guards_and_the_objectives_own_is_named_beside_it() -> None:
    found = winner(kl_limit=0.2)
    assert limit_of(found) == 0.5
    text = "\n".join(outlook(found, target(found, "trl")))
    assert "KL limit of a checkpoint to keep: 0.2 nats/token" in text
    assert limit_of(winner(kl_guard=None, kl_limit=0.2)) == 0.2
    assert limit_of(winner(kl_guard=None, kl_limit=None)) is None


def test_a_limit_per_sequence_is_spread_over_the_targets_length() -> None:
    found = winner(kl_unit=KLUnit.SEQUENCE, kl_limit=6.0, kl_guard=None)
    where = target(found, "trl", mean_tokens=300.0, max_new_tokens=512)
    assert any("0.02 nats/token = 6 nats/sequence" in line for line in outlook(found, where))


def test_a_setting_that_was_never_run_promises_nothing() -> None:
    found = winner(stop=None, gold=None, kl_guard=None, kl_limit=None, confirmation="")
    assert outlook(found, target(found, "trl")) == ()


def test_gold_without_an_interval_and_a_single_step_are_said_so() -> None:
    base = winner()
    assert base.gold is not None
    assert base.stop is not None
    found = replace(
        base,
        gold=replace(base.gold, low=None, start=None),
        stop=replace(base.stop, last_step=30, ended_by="its training was ended by a guard"),
    )
    assert gold_words(found) == "1.100; gold_peak on the select prompts"
    assert found.stop is not None
    assert last_step_words(base.stop) == "the last of the steps to stop at (30 to 50)"
    assert last_step_words(found.stop) == "the step to stop at"
    assert stop_words(found, 24.0).startswith("at step 30 of 80")
    assert stop_words(found, 24.0).endswith("its training was ended by a guard")


def test_what_differs_from_the_study_is_warned_of() -> None:
    plain = winner()
    assert cautions(plain, target(plain, "trl")) == []
    source = replace(plain.source, rivals=3, is_recommended=False)
    shaped = {"reward": {"normalize": "initial", "clip": 5.0}, "kl": {"clip": 4.0}}
    found = winner("exact-loss", trainer=shaped, source=source)
    text = "\n".join(cautions(found, target(found, "trl", batch=128)))
    for part in (
        "3 other settings",
        "trial 7 is not what the study recommends",
        "z-scored (initial), clipped to ± 5",
        "for the raw proxy",
        "clipped a token's KL to ± 4 nats",
        "exact-loss takes the KL over the vocabulary",
        "learning rate and number of steps",
    ):
        assert part in text
    native = winner(trainer=shaped, beta_unit=BetaUnit.NATIVE)
    assert any("shape it alike" in line for line in cautions(native, target(native, "trl")))


def test_updates_are_epochs_times_minibatches() -> None:
    assert updates_per_rollout(winner(trainer={"epochs": 2, "minibatches": 4})) == 8


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (KLUnit.TOKEN, "0.1 nats/token = 30 nats/sequence at a mean of 300 tokens"),
        (KLUnit.SEQUENCE, "0.008 nats/token = 2.4 nats/sequence at a mean of 300 tokens"),
    ],
)
def test_the_kl_to_stop_at_is_carried_over_in_the_studys_unit(unit: KLUnit, expected: str) -> None:
    found = winner(kl_unit=unit)
    where = target(found, "trl", mean_tokens=300.0, max_new_tokens=1024)
    (stop,) = [line for line in outlook(found, where) if line.startswith("stop:")]
    assert expected in stop


def test_a_trial_in_doubt_is_said_so_on_top() -> None:
    found = winner(source=replace(winner().source, doubt="is infeasible"))
    assert cautions(found, target(found, "trl", "1.11.0"))[0] == "trial 7 is infeasible"


@pytest.mark.parametrize("export", [export_trl, export_openrlhf, export_nemo_rl])
def test_only_of_the_recommended_trial_beta_0_was_found_best(
    export: Callable[[Winner, Target], Exported],
) -> None:
    framework = export.__name__.removeprefix("export_").replace("_", "-")
    none = winner(None, beta=0.0)
    assert "found beta = 0 best" in export(none, target(none, framework)).text
    other = replace(none, source=replace(none.source, is_recommended=False))
    text = export(other, target(other, framework)).text
    assert "found beta = 0 best" not in text
    assert "trial 7 has beta = 0" in text
