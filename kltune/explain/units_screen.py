"""What `explain units` computed in, its screen out."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from kltune.explain import page
from kltune.explain.page import nats, short
from kltune.explain.units import Balance, UnitsFacts


def units_screen(facts: UnitsFacts) -> Group:
    """The same KL, beta and horizon in every unit."""
    return page.stack(
        page.title("Units: the same KL, beta and horizon in other people's numbers"),
        page.facts(
            [
                ("KL", _kl(facts)),
                ("beta", _beta(facts)),
                ("balance", _balance(facts)),
                (
                    "horizon",
                    f"{short(facts.horizon)} at n = {facts.rows:,} is {short(facts.horizon_to)} at n = "
                    f"{facts.rows_to:,}: n / horizon = {short(facts.gain)} stays. n: sequences of a step.",
                ),
            ]
        ),
        *_frameworks(facts),
    )


def _kl(facts: UnitsFacts) -> str:
    return (
        f"{short(facts.kl_token)} nats/token = {short(facts.kl_seq)} nats/sequence, at {short(facts.tokens)} tokens "
        f"({nats(facts.kl_token_bits)} bits/token, {short(facts.kl_seq_bits)} bits/sequence; 1 nat = 1 / log 2 bits). "
        "Exact where the mean is over all tokens; a mean of each answer's mean differs when lengths vary."
    )


def _beta(facts: UnitsFacts) -> str:
    return (
        f"{short(facts.beta)} of {facts.source} = {short(facts.beta_reward)} raw reward per nat of sequence KL = "
        f"{short(facts.beta_advantage)} beside advantages over the group's standard deviation, "
        f"{short(facts.sigma_r)} here (--sigma-r). The price is per nat of the whole answer, though logs are per token."
    )


def _balance(facts: UnitsFacts) -> Text:
    ratio = f"mean penalty {short(facts.penalty)} / reward spread {short(facts.sigma_r)} = {short(facts.penalty_ratio)}"
    if facts.balance is Balance.DROWNS:
        return page.bad(
            f"{ratio}: the penalty DROWNS the reward and nothing is learned but to stay. Lower beta, or "
            "scale the reward up, by about that factor."
        )
    if facts.balance is Balance.UNFELT:
        return page.doubtful(f"{ratio}: the penalty is HARDLY FELT; the run is one without KL.")
    if facts.balance is Balance.NEGATIVE:
        return page.bad(
            f"{ratio}: BELOW 0, so no KL (that is never negative): noise of estimator k1, or settings. "
            "kltune explain kl --mean tells them apart."
        )
    return page.good(f"{ratio}: both are felt.")


def _frameworks(facts: UnitsFacts) -> tuple[Text, page.Columns, Text]:
    rows = [
        (
            Text(row.key, style="green") if row.key == facts.source else row.key,
            row.metric,
            row.estimator,
            row.kl_unit.removeprefix("nats/"),
            row.beta_in,
        )
        for row in facts.frameworks
    ]
    table = page.columns(["--from", "logs KL as<", "estimator<", "nats per<", "beta in<"], rows)
    counts = "; ".join(f"{row.key} {row.n}" for row in facts.frameworks if row.n)
    notes = (
        "beta in reward: raw reward per nat; in advantage: beside advantages over the group's std (openrlhf-reward "
        "too, under group_norm). wk3: k3 × ratio, in TRL from 1.10, NeMo-RL from 0.7; k3 before. verl-loss: per token "
        "in its default token-mean. trl-ppo: up to TRL 1.12, its controller up to 0.11.\n"
        f"n of a controller: {counts}. The others have none.\n"
        "ppo_kl, approx_kl, policykl: new policy against old, never the reference."
    )
    return page.heading("What frameworks log and count"), table, Text(notes, style="dim")
