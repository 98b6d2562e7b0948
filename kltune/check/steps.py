"""What the probes found of the start, of a step and of masks in; whether a step does what is meant out, as lines."""

from __future__ import annotations

from kltune.check import thresholds as limit
from kltune.check.result import Line
from kltune.check.scale import Scale, size
from kltune.grade import Grade
from kltune.trainer.soundness.facts import FixedPointFacts, MaskFacts, ReferenceFacts
from kltune.trial.words import both_units, number


def start_line(found: ReferenceFacts, scale: Scale) -> Line:
    """Whether the policy starts at its reference: a KL of 0, within what the arithmetic can tell."""
    title = "KL at step 0 is 0"
    numbers = {
        "exact_kl_token": found.exact_kl_token,
        "exact_kl_seq": found.exact_kl_seq,
        "k1_token": found.k1_token,
        "k3_token": found.k3_token,
        "largest_gap": found.largest_gap,
        "floor_kl_token": found.floor_kl_token,
        "floor_gap": found.floor_gap,
    }
    kl = max(found.exact_kl_token, found.k3_token, key=size)
    shown = f"{both_units(found.exact_kl_token, found.exact_kl_seq)} (exact), k3 {number(found.k3_token, 2)}"
    if not abs(kl) <= scale.gaps.kl_fail or scale.grade(found.largest_gap) is Grade.FAIL:
        remedy = (
            "The reference must be the policy's own start, adapter included, with dropout off and at the same "
            "temperature and precision."
        )
        said = f"It is {shown}; log-probs differ by up to {number(found.largest_gap, 2)} nats."
        return Line("start_kl", title, Grade.FAIL, said, remedy, numbers)
    floor = f"arithmetic ({found.precision}) makes {number(found.floor_kl_token, 2)} nats/token by itself"
    least = scale.least_kl
    if least is not None and not found.floor_kl_token <= limit.FLOOR_WARN * least:
        said = f"It is {shown}, but {floor}, and the spec tells KLs of {number(least)} apart."
        remedy = "Set trainer.precision: fp32, or larger limits and targets."
        return Line("start_kl", title, Grade.WARN, said, remedy, numbers)
    return Line("start_kl", title, Grade.PASS, f"It is {shown}; {floor}.", "", numbers)


def fixed_point_line(found: FixedPointFacts, scale: Scale, lost_scores: str | None = None) -> Line:
    """Whether a step moves the policy by its learning rate alone, and never the reference.

    ``lost_scores``: why the proxy's scores can't be told apart in the step's arithmetic, if so.
    """
    title = "learning rate 0 moves nothing, a step moves the policy alone"
    numbers = {
        "changed_at_zero": float(found.changed_at_zero),
        "learning_rate": found.learning_rate,
        "changed_frac": found.changed_frac,
        "largest_change": found.largest_change,
        "grad_norm": found.grad_norm,
        "zero_group_frac": found.zero_group_frac,
        "kl_after_token": found.kl_after_token,
    }
    grade, said, remedy = _fixed_point(found, scale, lost_scores)
    return Line("fixed_point", title, grade, said, remedy, numbers)


def _fixed_point(
    found: FixedPointFacts, scale: Scale, lost_scores: str | None
) -> tuple[Grade, str, str]:
    if not found.weights_kept_at_zero:
        said = f"A step at learning rate 0 changed {found.changed_at_zero:,} weights."
        return Grade.FAIL, said, "Look for weight decay or a step that does not use the rate."
    is_moved = not found.reference_kept or found.reference_logprobs_kept is False
    if is_moved or found.shares_storage:
        said = "A step of the policy changed the reference."
        if found.shares_storage:
            said += " They share memory."
        return Grade.FAIL, said, "The reference must be a frozen copy of the start."
    if not found.weights_moved:
        said = f"A step at learning rate {found.learning_rate:g} moved no weight (gradient norm {number(found.grad_norm)})."
        if lost_scores is not None:
            said += f" The proxy's scores differ, but not in the step: {lost_scores}."
            return Grade.FAIL, said, "Mend the proxy (see that line)."
        if found.zero_group_frac >= 1:
            said += " All completions of each prompt had the same score."
            return (
                Grade.WARN,
                said,
                "More completions per prompt, or a proxy that tells them apart.",
            )
        return Grade.FAIL, said, "Look at the loss mask and at what is trained."
    moved = f"a step at {found.learning_rate:g} moved {100 * found.changed_frac:.0f} % of them"
    said = f"At 0 every trained weight stays; {moved}, to a KL of {number(found.kl_after_token, 2)} nats/token."
    most = scale.most_kl
    if most is not None and not found.kl_after_token <= most:
        said = f"One step at learning rate {found.learning_rate:g} leads to {number(found.kl_after_token)} nats/token, above the limit of {number(most)}."
        return Grade.WARN, said, "Lower trainer.learning_rate."
    return Grade.PASS, said, ""


def mask_line(found: MaskFacts) -> Line:
    """Whether exactly the tokens up to and including the first stop token count."""
    title = "valid tokens are those counted by hand"
    numbers = {
        "by_hand": float(found.by_hand),
        "by_mask": float(found.by_mask),
        "by_lengths": float(found.by_lengths),
        "scored": float(found.scored),
        "weighted_outside": found.weighted,
        "wrong_rows": float(found.wrong_rows),
        "wrong_ends": float(found.wrong_ends),
        "longest": float(found.longest),
        "prompt_tail_frac": found.prompt_tail_frac,
        "step_by_hand": None if found.step_by_hand is None else float(found.step_by_hand),
        "step_metric": found.step_metric,
    }
    samples = ", ".join(f"{one.by_hand} by hand and {one.by_mask} by mask" for one in found.samples)
    wrong = _mask_faults(found)
    if wrong:
        said = f"{'; '.join(wrong)}. Samples: {samples}."
        remedy = (
            "A completion's tokens are those up to and including the first stop token: no prompt, no padding, "
            "by position and not by pad id."
        )
        return Line("mask", title, Grade.FAIL, said, remedy, numbers)
    said = f"{found.by_hand} tokens in all; samples: {samples}."
    if found.prompt_tail_frac > limit.TAIL_WARN:
        said += f" {100 * found.prompt_tail_frac:.0f} % of the completions begin with their prompt's last token."
        remedy = "Unless the task asks for that, prompt tokens are counted: look where a completion begins."
        return Line("mask", title, Grade.WARN, said, remedy, numbers)
    return Line("mask", title, Grade.PASS, said, "", numbers)


def _mask_faults(found: MaskFacts) -> list[str]:
    wrong: list[str] = []
    hand = found.by_hand
    if found.by_mask != hand or found.wrong_rows:
        wrong.append(
            f"{found.by_mask} tokens count, by hand {hand} ({found.wrong_rows} completions are wrong)"
        )
    if found.by_lengths != hand:
        wrong.append(f"lengths add up to {found.by_lengths}, by hand {hand}")
    # A token of probability 1 has a log-prob of 0, so fewer may be right.
    if found.scored > hand:
        wrong.append(f"{found.scored} positions have a log-prob, by hand {hand}")
    if not abs(found.weighted) <= limit.OFF_BY_ONE:
        wrong.append(f"the loss puts a weight of {number(found.weighted)} outside the completions")
    if found.longest > found.limit:
        tail = 100 * found.prompt_tail_frac
        wrong.append(
            f"a completion of {found.longest} tokens counts, and {found.limit} are drawn at most ({tail:.0f} % begin "
            "with the last token of their prompt)"
        )
    if found.wrong_ends:
        wrong.append(f"{found.wrong_ends} completions are wrong about whether they ended")
    if found.step_by_hand is not None and found.step_metric != found.step_by_hand:
        wrong.append(
            f"tokens/step of a step says {number(found.step_metric, 6)}, by hand {found.step_by_hand}"
        )
    return wrong
