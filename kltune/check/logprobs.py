"""What the probes found of log-probs in; whether they are right, alone and side by side, out, as lines."""

from __future__ import annotations

from kltune.check.result import Line
from kltune.check.scale import Scale, size
from kltune.grade import Grade
from kltune.trainer.soundness.facts import DropoutFacts, OracleFacts, PaddingFacts, SamplerFacts
from kltune.trial.words import number


def padding_line(found: PaddingFacts, scale: Scale) -> Line:
    """Whether a completion's log-probs are its own, whoever stands beside it."""
    by_name = {
        "left padding": max(found.policy_left, found.reference_left, key=size),
        "right padding": max(found.policy_right, found.reference_right, key=size),
        "neighbours": max(found.policy_neighbours, found.reference_neighbours, key=size),
    }
    grade = scale.grade(*by_name.values())
    most = max(by_name, key=lambda name: size(by_name[name]))
    shown = f"largest difference of a log-prob {number(by_name[most], 2)} nats over {found.num_tokens} tokens"
    said = f"They don't: {shown}." if grade is Grade.PASS else f"They do, by {most}: {shown}."
    remedy = (
        ""
        if grade is Grade.PASS
        else "Pass attention mask and position ids to the model in every pass."
    )
    numbers = {
        "policy_left": found.policy_left,
        "policy_right": found.policy_right,
        "policy_neighbours": found.policy_neighbours,
        "reference_left": found.reference_left,
        "reference_right": found.reference_right,
        "reference_neighbours": found.reference_neighbours,
    }
    title = "log-probs do not depend on padding and neighbours"
    return Line("padding", title, grade, said, remedy, numbers)


def logprob_line(found: OracleFacts, scale: Scale) -> Line:
    """Whether the trainer's log-probs are those of a plain forward of the same model."""
    title = "log-probs are those of a plain forward"
    numbers = {
        "policy_gap": found.policy_gap,
        "reference_gap": found.reference_gap,
        "mean_gap": found.mean_gap,
        "best_shift": None if found.best_shift is None else float(found.best_shift),
        "shift_gap": found.shift_gap,
    }
    gap = max(found.policy_gap, found.reference_gap, key=size)
    shown = f"largest difference {number(gap, 2)} nats over {found.num_tokens} tokens"
    if found.cause == "temperature":
        said = f"They are, at another temperature (see that line): {shown}."
        return Line("logprobs", title, Grade.PASS, said, "", numbers)
    grade = scale.grade(found.policy_gap, found.reference_gap)
    if grade is Grade.PASS:
        return Line("logprobs", title, grade, f"They are: {shown}.", "", numbers)
    if found.cause == "shift":
        steps = found.best_shift or 0
        said = (
            f"They are those of the token {abs(steps)} {'after' if steps > 0 else 'before'}: moved by {steps:+d} "
            f"the mean difference is {number(found.shift_gap, 2)} nats, as it is {number(found.mean_gap, 2)}."
        )
        remedy = "The logits of position t are of token t + 1: cut logits and ids accordingly."
        return Line("logprobs", title, grade, said, remedy, numbers)
    who = "policy" if size(found.policy_gap) >= size(found.reference_gap) else "reference"
    said = f"They are not ({who}): {shown}, by no shift and no temperature."
    remedy = (
        "Look for dropout, a mask, another precision, or logits that are changed after the head."
    )
    return Line("logprobs", title, grade, said, remedy, numbers)


def temperature_line(found: OracleFacts, scale: Scale) -> Line:
    """Whether policy and reference are scored at the temperature of the spec."""
    title = "log-probs are at the temperature of sampling"
    numbers = {
        "temperature": found.temperature,
        "fitted_temperature": found.fitted_temperature,
        "fitted_gap": found.fitted_gap,
    }
    if found.cause != "temperature":
        agree = scale.grade(found.policy_gap, found.reference_gap) is Grade.PASS
        said = (
            f"Both at {found.temperature:g}."
            if agree
            else f"No other temperature than {found.temperature:g} explains the log-probs."
        )
        return Line("temperature", title, Grade.PASS, said, "", numbers)
    said = (
        f"The trainer's are at {number(found.fitted_temperature)} (mean difference {number(found.fitted_gap, 2)} nats "
        f"there, {number(found.mean_gap, 2)} at {found.temperature:g}), trainer.temperature is {found.temperature:g}."
    )
    remedy = "Divide the logits of policy and reference by trainer.temperature, as sampling does."
    return Line("temperature", title, Grade.FAIL, said, remedy, numbers)


def sampler_line(found: SamplerFacts, scale: Scale) -> Line:
    """Whether tokens are drawn from the distribution that they are trained on."""
    title = "sampler and trainer agree"
    numbers = {
        "start_gap": found.start_gap,
        "start_mean": found.start_mean,
        "moved_gap": found.moved_gap,
        "moved_mean": found.moved_mean,
    }
    grade = scale.grade(found.start_gap, found.moved_gap)
    after = "" if found.moved_gap is None else f", {number(found.moved_gap, 2)} after a step"
    shown = (
        f"largest difference of a log-prob {number(found.start_gap, 2)} nats at the start{after} "
        f"({found.num_tokens} tokens)"
    )
    if grade is Grade.PASS:
        return Line("sampler", title, grade, f"They do: {shown}.", "", numbers)
    remedy = (
        "Sample and train at one temperature, without top-k, top-p or penalties, and with the same weights; where "
        "log-probs, padding or dropout failed as well, begin there."
    )
    return Line("sampler", title, grade, f"They don't: {shown}.", remedy, numbers)


def dropout_line(found: DropoutFacts, scale: Scale) -> Line:
    """Whether the same pass gives the same numbers twice."""
    title = "dropout is off in every pass"
    numbers = {
        "num_active": float(found.num_active),
        "policy_gap": found.policy_gap,
        "reference_gap": found.reference_gap,
        "training_modules": float(found.training_modules),
    }
    passes = scale.grade(found.policy_gap, found.reference_gap)
    if found.num_active or passes is not Grade.PASS:
        grade = Grade.FAIL if found.num_active else passes
        named = f" ({', '.join(found.active)})" if found.active else ""
        gap = max(found.policy_gap, found.reference_gap, key=size)
        who = (
            f"{found.num_active} modules drop" if found.num_active else "No module is seen to drop"
        )
        said = f"{who}{named}; two passes over the same rows differ by up to {number(gap, 2)} nats."
        remedy = "Put the model into evaluation mode for sampling, scoring and training alike."
        return Line("dropout", title, grade, said, remedy, numbers)
    if found.scores_repeat is False:
        remedy = "Put the reward model into evaluation mode."
        said = "The reward model gives other scores the second time."
        return Line("dropout", title, Grade.FAIL, said, remedy, numbers)
    said = "Two passes over the same rows agree."
    if found.in_config:
        said += f" The config's {', '.join(found.in_config)} are not in force."
    return Line("dropout", title, Grade.PASS, said, "", numbers)
