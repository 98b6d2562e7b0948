from __future__ import annotations

import io

from fake_study import trial
from rich.console import Console

from kltune.screen.plan import Plan, dry_run_table
from kltune.spec.trial import BetaUnit, KLUnit


def test_the_plan_shows_trials_settings_time_memory_and_calls() -> None:
    plan = Plan(
        name="kitchen",
        trials_by_origin={"baseline:verl-ppo": 1, "zero": 1, "sobol": 8, "tpe": 14},
        ended_before=0,
        first_settings=[("zero", trial(0.0).setting), ("sobol", trial(0.1).setting)],
        slots=2,
        steps=80,
        seconds=412.0,
        memory_gib=0.9,
        reward_calls=122_880,
        gold_calls=27_648,
        kl_unit=KLUnit.TOKEN,
        beta_unit=BetaUnit.REWARD,
        notes=["horizon 6,400 is inert"],
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(dry_run_table(plan))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for part in (
        "nothing was started",
        "24 to run of up to 80 steps, 2 at once: recipe verl-ppo, beta = 0 arm, Sobol point × 8",
        "about 6 min 52 s",
        "about 0.9 GiB",
        "at most 122,880 completions",
        "at most 27,648 completions",
        "horizon 6,400 is inert",
        "k2-loss, beta 0.1 reward per nat of sequence KL, fixed",
    ):
        assert part in text


def test_the_plan_names_the_unit_that_the_credit_gives_beta() -> None:
    setting = trial(0.1, penalty="k1-reward").setting
    plan = Plan(
        "kitchen", {"sobol": 1}, 0, [("sobol", setting)], 1, 80, None, None, 1, 1,
        KLUnit.TOKEN, BetaUnit.REWARD, credit="length-mean",
    )  # fmt: skip
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(dry_run_table(plan))
    assert "beta 0.1 reward per nat per token of mean KL" in console.export_text()
