"""An audit in, what a person reads in the terminal out: every number with its unit."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kltune.audit.result import AuditResult, Norms, Pair
from kltune.audit.statistics import Alignment, Estimate
from kltune.audit.verdict import Kind
from kltune.trial.words import MISSING, both_units, duration, number

_STYLES = {
    Kind.FULL: "green",
    Kind.LOCAL: "green",
    Kind.ELSEWHERE: "yellow",
    Kind.NOISE: "red",
    Kind.AWAY: "red",
    Kind.UNKNOWN: "dim",
}


def audit_table(result: AuditResult) -> Group:
    """The whole audit as a person reads it."""
    parts: list[RenderableType] = [
        _facts(result),
        Text("\nGradient of each penalty, at a coefficient of 1", style="bold"),
        _penalties(result),
        Text(_READING, style="dim"),
        Text("\nEstimators of the KL, on the same samples", style="bold"),
        _estimators(result),
        Text(_UNITS, style="dim"),
        Text("\nWhat other trainers would log for the same samples", style="bold"),
        _frameworks(result),
    ]
    parts += [Text(f"note: {note}", style="yellow") for note in result.notes]
    return Group(*parts)


_READING = (
    "full: beside the gradient of the whole sequence's KL; local: beside its token-local part. Length: in "
    "units of the full one's. ± one standard error (a cosine may exceed 1 by it); blank: can't be told from 0."
)
_UNITS = (
    "mean and standard deviation (sd) in nats, of one token and of one completion; exact: the whole "
    "distribution at every sampled position; needed: completions for a mean within 10 % (one standard "
    "error). wk1 and wk3 are k1 and k3 on the policy's own samples."
)


def _facts(result: AuditResult) -> Table:
    pair, kl = result.pair, result.divergences
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold", ratio=1)
    table.add_row("Policy", Text(pair.policy))
    table.add_row("Reference", Text(pair.reference))
    table.add_row("Samples", Text(_samples_words(pair)))
    table.add_row(
        "KL(policy, reference)",
        Text(
            f"{both_units(kl.kl_token.value, kl.kl_seq.value)} "
            f"(± {number(kl.kl_token.se, 2)} and {number(kl.kl_seq.se, 2)}), exact at each position, "
            f"temperature {pair.temperature:g}"
        ),
    )
    table.add_row(
        "KL(reference, policy)",
        Text(
            f"{_plus_minus(kl.forward_token)} nats/token, exact at the policy's own prefixes, not the "
            "reference's (as metric kl/forward_token)"
        ),
    )
    table.add_row("Gradient lengths", Text(_norm_words(result.norms)))
    table.add_row("Took", Text(duration(result.seconds)))
    return table


def _samples_words(pair: Pair) -> str:
    tokens = f"{pair.mean_tokens:.1f} tokens each on average"
    if pair.is_enumerated:
        how = f"every completion of {pair.num_prompts} prompts ({pair.num_completions}), by its probability"
        return f"{how}; {tokens}; no sampling error"
    return (
        f"{pair.num_completions} completions of {pair.num_prompts} different prompts ({pair.prompts}) in "
        f"{pair.num_blocks} independent blocks; {tokens}; {pair.num_parameters:,} trainable parameters"
    )


def _norm_words(norms: Norms) -> str:
    if norms.policy is None or norms.kl is None:
        which = "policy gradient" if norms.policy is None else "KL gradient"
        return f"the {which} can't be told from noise with these samples"
    text = (
        f"policy gradient ({norms.algorithm}) {_plus_minus(norms.policy)}; KL gradient "
        f"{_plus_minus(norms.kl)} at a coefficient of 1"
    )
    if norms.coefficient > 0:
        text += (
            f"; at beta {number(norms.beta)} ({norms.setting}; coefficient {number(norms.coefficient)} beside "
            f"the advantages) the KL pulls {number(norms.ratio, 2)} times as hard as the reward"
        )
    return f"{text}; equally long at a coefficient of {number(norms.balance, 2)}"


def _penalties(result: AuditResult) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("penalty", no_wrap=True)
    for name in ("cosine, full", "length", "cosine, local"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold", ratio=1)
    for row in result.penalties:
        cosine, length = _alignment(row.full)
        table.add_row(
            row.penalty.value,
            cosine,
            length,
            _alignment(row.local)[0],
            Text(row.verdict.text, style=_STYLES[row.verdict.kind]),
        )
    return table


def _alignment(alignment: Alignment) -> tuple[str, str]:
    if alignment.cosine is None or alignment.ratio is None:
        limit = alignment.ratio_limit
        return "", "" if limit is None else f"< {limit:.2f}"
    return _short(alignment.cosine), _short(alignment.ratio)


def _estimators(result: AuditResult) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("mean/token", "bias/token", "sd/token", "bias/seq.", "sd/seq.", "needed"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.estimators:
        is_exact = row.name == "exact"
        table.add_row(
            row.name,
            number(row.mean_token),
            "0" if is_exact else _plus_minus(row.bias_token),
            number(row.sd_token),
            "0" if is_exact else _plus_minus(row.bias_seq),
            number(row.sd_seq),
            f"{row.completions_needed:,.0f}" if row.completions_needed < 1e9 else MISSING,
        )
    return table


def _frameworks(result: AuditResult) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    table.add_column("who logs it, and as what", overflow="fold", ratio=4)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("what it is", overflow="fold", ratio=5)
    for log in result.frameworks:
        name = Text(f"{log.framework.split()[0]} {log.setting}: ")
        table.add_row(
            name.append(log.metric, style="bold"),
            f"{number(log.logged.value)} {log.logged.unit}",
            Text(log.logged.definition),
        )
    return table


def _short(estimate: Estimate) -> str:
    if estimate.se < 0.0005:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ± {estimate.se:.2f}"


def _plus_minus(estimate: Estimate) -> str:
    if estimate.se == 0:
        return number(estimate.value)
    return f"{number(estimate.value)} ± {number(estimate.se, 2)}"
