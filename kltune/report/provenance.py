"""A study in, what a reader needs to judge and repeat it out: units, versions, seeds, commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, cast

from kltune.report.controller_rules import reference_words
from kltune.report.document import Block, Code, Facts, Paragraph
from kltune.report.native import divisor_of
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.algorithm import RewardSpec
from kltune.spec.penalty import NATURES, Penalty
from kltune.spec.trial import BetaUnit
from kltune.trial.words import KL_UNIT, duration, number

_NAMED = 5
"""Damaged lines that are named."""
_NOT_SHOWN = ("schema", "non_finite", "command")


def provenance(study: StudyRows, best: TrialRow | None = None) -> tuple[Block, ...]:
    """Everything in words that the numbers rest on; ``best``: the trial to run again first."""
    return (
        *_damaged(study),
        Facts(tuple(_reading(study))),
        Paragraph(
            "To repeat it, as it was started:"
            if study.environment.get("command")
            else "To repeat it, from this study folder:"
        ),
        Code(reproduce(study)),
        *_replaying(study, best),
        Facts((*_running(study), *flattened(study.environment))),
    )


def _damaged(study: StudyRows) -> tuple[Paragraph, ...]:
    """Lines of the record that nobody could read; a last line that a process is at is none."""
    found = [
        f"{lost.path.relative_to(study.path).as_posix()}, line {lost.line}{' (cut short)' * lost.is_cut}"
        for row in study.trials
        for lost in row.damage
        if not (lost.is_cut and study.is_running)
    ]
    if not found:
        return ()
    more = len(found) - _NAMED
    listed = "; ".join(found[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    lines = "A line of the record" if len(found) == 1 else f"{len(found)} lines of the record"
    words = f"{lines} can't be read, and what stood there is missing from this report: {listed}."
    return (Paragraph(words, "warning"),)


def _replaying(study: StudyRows, best: TrialRow | None) -> tuple[Block, ...]:
    row = best or next((t for t in study.trials if t.curve.step), None)
    if row is None:
        return ()
    what = "the recommended trial" if best is not None else "one trial"
    return (
        Paragraph(
            f"To run {what} again and see whether it repeats its record (commands on this page call the study "
            f"{study_argument(study)}; elsewhere give its path):"
        ),
        Code(replay_command(study, row)),
    )


def reproduce(study: StudyRows) -> str:
    """The command that runs the same study again into a new folder."""
    command = study.environment.get("command")
    if isinstance(command, list):
        return shlex.join(str(word) for word in cast("list[object]", command))
    if isinstance(command, str):
        return command
    spec = study.spec
    return f"kltune sweep spec.yaml --study again --trials {spec.budget.trials} --seed {spec.seed}"


def study_argument(study: StudyRows) -> str:
    """The study as a command takes it, quoted; no folder of this machine.

    ``studies/NAME`` where it lies in a folder of that name, else ``NAME``: typed beside it.
    """
    path = study.path.resolve()
    name = f"studies/{path.name}" if path.parent.name == "studies" else path.name
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def export_command(study: StudyRows, row: TrialRow, *, is_recommended: bool = False) -> str:
    """The command that writes a trial's setting for a trainer that can run it."""
    command = f"kltune export {study_argument(study)} --to {export_target(study, row)}"
    return command if is_recommended else f"{command} --trial {row.number}"


def export_target(study: StudyRows, row: TrialRow) -> str:
    """TRL where it has the gradient of the penalty, else verl, else plain JSON.

    Tested against what `kltune export` refuses, by penalty and algorithm.
    """
    penalty, algorithm = row.setting.penalty, study.spec.trainer.algorithm
    if penalty is not None and row.setting.beta > 0:
        if penalty.nature.refusal is not None or penalty is Penalty.JEFFREYS_LOSS:
            return "json"
        is_whole = penalty.nature.gradient == NATURES[Penalty.K1_REWARD].gradient
        if is_whole and algorithm == "grpo":
            return "verl"  # TRL's GRPO has no KL in the reward
    return "trl" if algorithm in ("grpo", "dr-grpo", "rloo") else "verl"


def replay_command(study: StudyRows, row: TrialRow) -> str:
    """The command that trains one trial again and compares it with its record."""
    return f"kltune replay {study_argument(study)} --trial {row.number}"


def flattened(values: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as labelled lines."""
    for key, value in values.items():
        label = f"{head} {key}".strip()
        if key in _NOT_SHOWN or value is None:
            continue
        if isinstance(value, dict):
            yield from flattened(cast("dict[str, Any]", value), label)
        else:
            yield label, str(value)


def _reading(study: StudyRows) -> Iterator[tuple[str, str]]:
    spec = study.spec
    held = "reference" if spec.trainer.reference.every is None else "start"
    yield (
        "KL",
        f"exact KL(policy ‖ {held}) in nats over the full vocabulary, on the policy's own samples. Per token: sum "
        "over all valid tokens / their number. Per sequence: mean over completions of the sum. "
        f"target_kl and limits of this study are in {KL_UNIT[spec.kl_unit]}",
    )
    reference = reference_words(spec.trainer)
    if reference:
        yield "Reference", reference
    yield "beta", study.beta_unit_words
    if study.sigma_r is not None:
        groups = study.reference.get("num_groups")
        yield (
            "sigma_R",
            f"{number(study.sigma_r)} raw reward: standard deviation of the proxy within a group of completions of "
            f"one prompt, under the reference, mean of {groups} groups, measured once",
        )
    yield "Coefficient in the loss", _coefficient_words(study)
    tokens = study.reference.get("mean_tokens")
    if isinstance(tokens, int | float):
        yield "Completion length", f"{number(float(tokens))} tokens on average under the reference"
    yield (
        "Loss",
        "says nothing about progress: centred advantages cancel, so its value starts at 0 and follows beta × KL",
    )
    yield (
        "Intervals",
        "± is one standard error over prompts (samples of a prompt averaged first); intervals of differences are 95 %, "
        "paired by prompt",
    )


def _coefficient_words(study: StudyRows) -> str:
    """How this study's algorithm and unit turn beta into a factor of the KL."""
    trainer = study.spec.trainer
    if study.spec.beta_unit is BetaUnit.NATIVE:
        return f"beta as it stands (native){_exact_full_words(study)}"
    divisor = divisor_of(study)
    if divisor is not None:
        value = (
            ""
            if divisor.symbol == "sigma_R"
            else f" {number(divisor.value)} (spread of the "
            "proxy over all completions of the reference, raw reward)"
        )
        return f"beta / {divisor.symbol}{value}, since {trainer.algorithm} divides its advantages by {divisor.words}"
    shaped = (
        "" if trainer.reward == RewardSpec() else " × shaped reward per raw reward (trainer.reward)"
    )
    if trainer.algorithm == "dr-grpo":
        return (
            f"beta × (G − 1) / G{shaped}, G = {trainer.group_size}: dr-grpo divides its advantages by nothing, and "
            "its baseline holds a completion's own reward"
        )
    return f"beta{shaped}: {trainer.algorithm} divides its advantages by nothing here"


def _exact_full_words(study: StudyRows) -> str:
    """exact-full pays the same in both places: its native beta is its price in the reward."""
    divisor = divisor_of(study)
    is_tried = any(row.setting.penalty is Penalty.EXACT_FULL for row in study.trials)
    return f"; of exact-full beta / {divisor.symbol}" if is_tried and divisor is not None else ""


def _running(study: StudyRows) -> Iterator[tuple[str, str]]:
    spec, trainer = study.spec, study.spec.trainer
    yield "spec", f"spec.yaml (as written), resolved.json (all defaults), study {spec.name}"
    yield "model", f"{spec.model.base}, LoRA rank {spec.model.rank}, {spec.model.dtype}"
    yield (
        "trial",
        f"{trainer.steps} steps of {trainer.prompts} prompts × {trainer.group_size} completions, up to "
        f"{trainer.max_new_tokens} tokens, temperature {number(trainer.temperature)}",
    )
    seeds = sorted({row.setting.seed for row in study.trials})
    yield "seed", f"study {spec.seed}; trials {', '.join(map(str, seeds)) or '–'}"
    yield "time in slots", duration(sum(row.seconds for row in study.trials))
