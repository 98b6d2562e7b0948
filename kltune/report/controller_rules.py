"""A study and its trials in; how their controllers move beta, in words with every constant, out."""

from __future__ import annotations

import math

from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.control import PRESETS, threshold_rule, warmup_steps
from kltune.spec.study import StudySpec
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import CONTROLLER_CLIP, ControllerKind
from kltune.trial.words import KL_UNIT, number


def controller_words(study: StudyRows, row: TrialRow) -> str:
    """How beta moves, with the controller's constants and what it did in the trial."""
    setting, spec = row.setting, study.spec
    kind = setting.controller
    if kind is ControllerKind.FIXED:
        return "fixed: beta stays constant"
    if kind is ControllerKind.PROPORTIONAL:
        gain, steps = controller_gain(spec, row)
        words = (
            f"proportional: target {target_words(study, row)}, horizon {number(setting.horizon)} sequences, gain "
            f"n/horizon = {number(gain)} per step, at the fastest {number(steps)} steps to double beta"
        )
    elif kind is ControllerKind.SCHEDULE:
        words = f"schedule: {_schedule_words(spec)}"
    else:
        words = f"{kind.value}: target {target_words(study, row)}, {_rule_words(spec, kind)}"
    if kind.has_target:
        words += "".join(f"; {option}" for option in _options(spec))
    moved = row.beta_range
    if moved is not None:
        words += f"; beta moved between {number(moved[0])} and {number(moved[1])} in the trial"
    return words


def controller_short(study: StudyRows, row: TrialRow) -> str:
    """What to set, without what it did; `controller_words` has its constants."""
    setting, spec = row.setting, study.spec
    kind = setting.controller
    if kind is ControllerKind.FIXED:
        return "none: beta is held"
    if kind is ControllerKind.SCHEDULE:
        return f"schedule: {_schedule_words(spec)}"
    words = f"{kind.value}, target {target_words(study, row)}"
    if kind is ControllerKind.PROPORTIONAL:
        words += f", horizon {number(setting.horizon)} sequences"
    return words + "".join(f"; {option}" for option in _options(spec))


def target_words(study: StudyRows, row: TrialRow) -> str:
    """The target that was set, or the one that the trial measured for itself."""
    unit = KL_UNIT[study.spec.kl_unit]
    if row.setting.target_kl is not None:
        return f"{number(row.setting.target_kl)} {unit}"
    measured = next((t for t in row.curve.target if math.isfinite(t)), None)
    if measured is None:
        return "not measured yet"
    return f"{number(measured)} {unit} (measured in the warm-up)"


def reference_words(trainer: TrainerSpec) -> str:
    """How the reference follows the policy, and which KL is to what; empty where it stays the start."""
    every, mixture = trainer.reference.every, trainer.reference.mixture
    if every is None:
        return ""
    when = "every step" if every == 1 else f"every {every} steps"
    what = (
        "it becomes the policy"
        if mixture == 1
        else f"its trainable weights become {number(mixture)} × the policy's + {number(1 - mixture)} × its own"
    )
    return (
        f"it follows the policy: {when} {what}. The KL shown is to the start; penalty and controller "
        "act on the KL to the moving reference (kl/anchor)"
    )


def controller_gain(spec: StudySpec, row: TrialRow) -> tuple[float, float]:
    """Gain n / horizon per step, and the least number of steps in which beta doubles."""
    assert row.setting.horizon is not None, "a proportional controller has a horizon"
    gain = spec.trainer.rows / row.setting.horizon
    return gain, math.log(2) / math.log1p(CONTROLLER_CLIP * gain)


def controller_formula(spec: StudySpec) -> str:
    """The proportional rule with its constants (field case E14)."""
    return (
        f"beta ← beta × (1 + clip(KL / target − 1, −{CONTROLLER_CLIP}, +{CONTROLLER_CLIP}) × n / horizon), with "
        f"n = {spec.trainer.rows} sequences per step, KL and target in {KL_UNIT[spec.kl_unit]} (exact KL of the "
        "step just done), horizon in sequences; the new beta counts from the next step"
    )


def rule_sentence(spec: StudySpec, kind: ControllerKind) -> str:
    """The rule of one kind of controller as this study has it, in one sentence."""
    if kind is ControllerKind.FIXED:
        return "Fixed controller: beta is constant, whatever the KL does."
    if kind is ControllerKind.SCHEDULE:
        return f"Scheduled controller: {_schedule_words(spec)}, whatever the KL does."
    options = "".join(f"; {option}" for option in _options(spec))
    if kind is ControllerKind.PROPORTIONAL:
        return f"Proportional controller: {controller_formula(spec)}{options}."
    preset = PRESETS.get(kind)
    source = "" if preset is None else f" ({preset.source})"
    unit = f"KL and target in {KL_UNIT[spec.kl_unit]}"
    return f"Controller {kind.value}{source}: {_rule_words(spec, kind)}; {unit}{options}."


def _rule_words(spec: StudySpec, kind: ControllerKind) -> str:
    rule = threshold_rule(kind, spec.control)
    when = "every step" if rule.every == 1 else f"every {rule.every} steps"
    return (
        f"{when} beta × {number(rule.up)} where KL is above {number(rule.above)} × target, beta × "
        f"{number(rule.down)} where it is below {number(rule.below)} × target"
    )


def _schedule_words(spec: StudySpec) -> str:
    return ", ".join(
        f"beta × {number(factor)} from {_share(share)}" for share, factor in spec.control.schedule
    )


def _options(spec: StudySpec) -> list[str]:
    """What ``control`` adds to a controller that steers KL."""
    control = spec.control
    options: list[str] = []
    if spec.trainer.reference.every is not None:
        options.append("KL to the moving reference")
    if control.calibrate is not None:
        steps = warmup_steps(control.calibrate, spec.trainer.steps)
        options.append(
            f"a target that is not set is {number(control.calibrate.factor)} × the median KL of the first "
            f"{steps} steps, in which beta is held"
        )
    if any(factor != 1 for _, factor in control.targets):
        stages = (f"× {number(factor)} from {_share(share)}" for share, factor in control.targets)
        options.append(f"target {', '.join(stages)}")
    if control.ema:
        options.append(f"KL smoothed, weight of the past {number(control.ema)}")
    if control.beta_min is not None:
        options.append(f"beta at least {number(control.beta_min)}")
    if control.beta_max is not None:
        options.append(f"beta at most {number(control.beta_max)}")
    return options


def _share(share: float) -> str:
    return "the start" if share == 0 else f"{number(100 * share)} % of the steps"
