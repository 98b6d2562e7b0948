"""A study's spec in; unit and meaning of every column of its tables out."""

from __future__ import annotations

from dataclasses import dataclass

from kltune.metrics.gold_names import FAMILY, is_gold_metric
from kltune.metrics.names import METRICS
from kltune.metrics.part_names import FAMILY as PARTS
from kltune.metrics.part_names import is_part_metric
from kltune.report.rows import StudyRows
from kltune.spec.scorers import part_names
from kltune.trial.words import KL_UNIT

_TIME = "s since 1970-01-01 UTC"
_GOLD = "gold"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    unit: str
    """Empty for text and for whole numbers that only name something."""
    meaning: str


def trial_columns(study: StudyRows) -> tuple[Column, ...]:
    """Columns of the table of trials; names as in report.json, settings as in the spec."""
    kl_unit = KL_UNIT[study.spec.kl_unit]
    golds = tuple(
        Column(f"gold_{name}_peak", "the gold's own", f"Gold {name} at best_step")
        for name in other_golds(study)
    )
    return (
        Column("trial", "", "Number of the trial"),
        Column("attempt", "", "Latest attempt"),
        Column("origin", "", "Who proposed it"),
        Column("beta", study.beta_unit_words, "KL coefficient at step 0"),
        Column("penalty", "", "Estimator and placement of the KL"),
        Column("controller", "", "How beta moves"),
        Column("target_kl", kl_unit, "Set point of the controller"),
        Column("horizon", "sequences", "Time constant of the proportional controller"),
        Column("learning_rate", "1", "Step size of AdamW"),
        Column("seed", "", "Root of the trial's random numbers"),
        Column(
            "coefficient",
            "that of the trainer's own loss or reward",
            "beta as the trainer multiplies it",
        ),
        Column("state", "", "complete, pruned, failed, interrupted or running"),
        Column("reason", "", "Why it ended; none while it runs"),
        Column("detail", "", "The guard's own words"),
        Column("warnings", "", "Guards that warned, comma-separated"),
        Column("feasible", "", "Whether the limits of the objective are respected"),
        Column("value", _GOLD, f"{study.spec.objective.metric}, what the search maximised"),
        Column("gold_start", _GOLD, "Mean gold before training, select prompts"),
        Column("gold_start_se", _GOLD, "Its standard error over prompts"),
        Column("gold_peak", _GOLD, "Mean gold at best_step, select prompts"),
        Column("gold_peak_se", _GOLD, "Its standard error over prompts"),
        Column("gold_final", _GOLD, "Mean of the last two evaluations after step 0"),
        Column("gold_last", _GOLD, "Mean gold at the last evaluation"),
        Column("gold_last_se", _GOLD, "Its standard error over prompts"),
        Column("proxy_peak", "proxy reward", "Mean proxy at best_step"),
        Column("proxy_last", "proxy reward", "Mean proxy at the last evaluation"),
        Column("kl_token", "nats/token", "Exact KL(policy || reference) at best_step"),
        Column("kl_seq", "nats/sequence", "The same per sequence"),
        Column("best_step", "steps", "Step of the checkpoint that it is judged by"),
        Column("beta_low", study.beta_unit_words, "Lowest beta used"),
        Column("beta_high", study.beta_unit_words, "Highest beta used"),
        Column("steps", "steps", "Training steps on record"),
        Column("seconds", "s", "Time in its slot"),
        *golds,
    )


def step_columns(study: StudyRows) -> tuple[Column, ...]:
    """Columns that a row of every training step may have; parts of a weighted proxy come last."""
    parts = tuple(
        Column(name.replace("<name>", part), unit, meaning.replace("<name>", part))
        for part in part_names(getattr(study.spec.task, "proxy", None))
        for name, unit, meaning in PARTS
    )
    return (*_head("Training steps done, this one included"), *_metrics("step"), *parts)


def eval_columns(study: StudyRows) -> tuple[Column, ...]:
    """Columns that a row of every evaluation may have."""
    family = tuple(
        Column(name.replace("<name>", gold), unit, meaning.replace("<name>", gold))
        for gold in other_golds(study)
        for name, unit, meaning in FAMILY
    )
    return (*_head("Training steps done before it"), *_metrics("eval"), *family)


def sample_columns(study: StudyRows) -> tuple[Column, ...]:
    """Columns of the table of kept completions."""
    golds = tuple(
        Column(f"gold_{name}", "the gold's own", f"Gold {name} of the completion")
        for name in other_golds(study)
    )
    return (
        *_head("Training steps done before the evaluation that kept it"),
        Column("prompt_id", "", "Name of the prompt"),
        Column("prompt", "", "Its text"),
        Column("completion", "", "What the policy wrote"),
        Column("gold", _GOLD, "Gold of the completion"),
        Column("proxy", "proxy reward", "Proxy of the completion"),
        Column("kl_seq", "nats/sequence", "Exact KL, summed over the completion"),
        Column("num_tokens", "tokens", "Length of the completion"),
        Column("ended", "", "Whether it ended by itself, not at the length limit"),
        *golds,
    )


def other_golds(study: StudyRows) -> tuple[str, ...]:
    """Names of the golds beside the objective's that some evaluation of the study has."""
    names = (name for row in study.trials for c in row.checkpoints for name in c.others)
    return tuple(dict.fromkeys(names))


def is_measured(name: str) -> bool:
    """Whether a key of a recorded row is a metric by its registered name, not its head or TRL's name."""
    return name in METRICS or is_gold_metric(name) or is_part_metric(name)


def _head(step: str) -> tuple[Column, ...]:
    return (
        Column("trial", "", "Number of the trial"),
        Column("step", "steps", step),
        Column("attempt", "", "Attempt that ran it"),
        Column("time", _TIME, "When it was written"),
    )


def _metrics(scope: str) -> tuple[Column, ...]:
    return tuple(Column(m.name, m.unit, m.meaning) for m in METRICS.values() if m.scope == scope)
