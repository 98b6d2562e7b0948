"""A trial in, the KL coefficient as a framework takes it out, with what it multiplies and where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.algorithm import RewardSpec
from kltune.spec.penalty import Penalty
from kltune.spec.trainer import TrainerSpec
from kltune.spec.trial import BetaUnit
from kltune.trial.words import number
from kltune.units import (
    advantage_scale,
    baseline_share,
    in_advantage_units,
    loss_coefficient,
    reward_price,
)

PAID = {
    Penalty.K1_REWARD: "log-ratio",
    Penalty.EXACT_FULL: "exact KL over the vocabulary",
    Penalty.EXACT_REWARD: "exact KL over the vocabulary",
    Penalty.K2_REWARD: "k2 = log-ratio² / 2",
    Penalty.K3_REWARD: "k3 = exp(−log-ratio) − 1 + log-ratio",
    Penalty.ABS_REWARD: "absolute log-ratio",
}
"""What a penalty pays in the reward for one token; log-ratio: log policy − log reference."""

_OVER = {
    "sequence": "summed over the completion",
    "reward-to-go": "of each token and later ones",
    "length-mean": "averaged over the completion",
}
"""Which tokens' KL a token pays, by the spec's credit."""

_SAME = 2e-3
"""Numbers closer than this are the same to three digits."""


@dataclass(frozen=True, slots=True)
class Divisor:
    """What an algorithm divides its advantages by."""

    symbol: str
    words: str
    value: float | None
    """In raw proxy reward, under the reference; none where it is not on record."""


@dataclass(frozen=True, slots=True)
class Span:
    """A number of a trial's steps: at the step to stop at, and over those up to it."""

    step: int
    at: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """The step and the range, where it moved; else nothing."""
        if math.isclose(self.low, self.high, rel_tol=_SAME):
            return ""
        return f" at step {self.step} (from {number(self.low)} to {number(self.high)} up to there)"


def divisor_of(study: StudyRows, row: TrialRow | None = None) -> Divisor | None:
    """By algorithm; none where advantages are divided by nothing."""
    trainer, sigma = study.spec.trainer, study.sigma_r
    if row is not None and row.sigma_r:
        sigma = row.sigma_r
    std = study.reference.get("std_r")
    value = advantage_scale(
        trainer.algorithm,
        math.nan if sigma is None else sigma,
        float(std) if isinstance(std, int | float) else math.nan,
        is_whitened=trainer.value_function is None or trainer.value_function.whiten,
    )
    if value is None:
        return None
    known = value if math.isfinite(value) and value > 0 else None
    if trainer.algorithm == "grpo":
        return Divisor("sigma_R", "their group's standard deviation", known)
    return Divisor("std_r", "their standard deviation over the batch", known)


def native_words(study: StudyRows, row: TrialRow) -> str:
    """The coefficient as a framework takes it, and how it comes from beta."""
    penalty = row.setting.penalty
    if row.setting.beta == 0 or penalty is None:
        return "KL coefficient 0"
    coefficient = _coefficient(study, row)
    if not penalty.in_reward:
        words = f"KL coefficient {_number(coefficient)} in the loss, {_beside(study, row)}"
        words += " (same aggregation as the policy loss)"
        return f"{words}{_shaped_only(study, row)}{_equation(study, row, coefficient)}"
    words = _reward_words(study, row, penalty)
    if penalty.in_loss:
        words += f"; and the exact KL of each token in the loss with coefficient {_number(coefficient)}, "
        words += f"{_beside(study, row)}{_equation(study, row, coefficient)}"
    elif coefficient is not None and _is_shaped(study.spec.trainer) and not _is_native(study):
        words += (
            f"; beside the shaped score that was trained on (trainer.reward) the coefficient is "
            f"{_number(coefficient)}"
        )
    return words


def native_coefficient(study: StudyRows, row: TrialRow) -> float | None:
    """Factor of the KL where the penalty pays it (exact-full: in the loss), at the step to stop at.

    None where nothing was recorded and its scale is not known.
    """
    found = _coefficient(study, row)
    return None if found is None else found.at


def typed_coefficient(study: StudyRows, row: TrialRow) -> float | None:
    """The same factor for the beta that was asked for: what to type, whatever a controller did with it later.

    By the trial's own record of both; before a step is on record, by the conventions. None where neither says.
    """
    beta = row.setting.beta
    if beta == 0 or row.setting.penalty is None:
        return 0.0
    pairs = zip(row.curve.coefficient, row.curve.beta, strict=True)
    factor = next((c / b for c, b in pairs if b > 0 and math.isfinite(c / b)), None)
    return _expected(study, row, beta) if factor is None else factor * beta


def typed_words(study: StudyRows, row: TrialRow, when: str = "") -> str:
    """`typed_coefficient`, ``when`` it holds and where it goes, in few words; `native_words` has the formula."""
    penalty, trainer = row.setting.penalty, study.spec.trainer
    if row.setting.beta == 0 or penalty is None:
        return "0"
    factor = number(typed_coefficient(study, row))
    in_loss = f"{factor}{when} in the loss, {_beside(study, row)}"
    if not penalty.in_reward:
        return f"{in_loss}{_shaped_only(study, row)}"
    over = "of each token" if trainer.algorithm == "ppo" else _OVER[trainer.credit]
    score = ""
    if _is_shaped(trainer):
        is_raw = penalty.in_loss and not _is_native(study)  # the recorded factor is then the loss's
        score = ", beside the raw score" if is_raw else ", beside the shaped score (trainer.reward)"
    price = number(row.setting.beta) if penalty.in_loss else factor
    in_reward = f"{price}{when} in the reward, times the {PAID[penalty]} {over}{score}"
    return f"{in_reward}; and {in_loss}" if penalty.in_loss else in_reward


def _coefficient(study: StudyRows, row: TrialRow) -> Span | None:
    recorded = _span(study, row, row.curve.coefficient)
    if recorded is not None or row.setting.penalty is None:
        return recorded
    expected = _expected(study, row, row.setting.beta)
    return None if expected is None else Span(0, expected, expected, expected)


def _span(study: StudyRows, row: TrialRow, column: tuple[float, ...]) -> Span | None:
    """``column`` at the last step to run: that of the peak, or of the end where the end is judged."""
    is_peak = study.spec.objective.metric == "gold_peak" and row.peak is not None
    last = row.peak.step if is_peak and row.peak is not None else math.inf
    pairs = zip(row.curve.step, column, strict=True)
    seen = [(step, value) for step, value in pairs if math.isfinite(value)]
    until = [pair for pair in seen if pair[0] <= last] or seen[:1]
    if not until:
        return None
    values = [value for _, value in until]
    return Span(until[-1][0], values[-1], min(values), max(values))


def _beta(study: StudyRows, row: TrialRow) -> Span:
    start = row.setting.beta
    return _span(study, row, row.curve.beta) or Span(0, start, start, start)


def _expected(study: StudyRows, row: TrialRow, beta: float) -> float | None:
    """The coefficient by the conventions, for an unshaped reward; none where its scale is not known."""
    trainer, penalty, unit = study.spec.trainer, row.setting.penalty, study.spec.beta_unit.value
    if penalty is None or (_is_shaped(trainer) and not _is_native(study)):
        return None
    price = reward_price(beta, unit)
    if not penalty.in_loss:
        return price
    divisor = divisor_of(study, row)
    is_free = _is_native(study) and not penalty.in_reward
    if divisor is not None and divisor.value is None and not is_free:
        return None
    scale = None if divisor is None else divisor.value
    share = 1.0 if is_free else baseline_share(trainer.algorithm, trainer.group_size)
    if penalty.in_reward:
        return share * in_advantage_units(price, scale)
    return share * loss_coefficient(beta, unit, scale)


def _reward_words(study: StudyRows, row: TrialRow, penalty: Penalty) -> str:
    """The formula of the reward; its score is the raw proxy's unless beta is native."""
    trainer, beta = study.spec.trainer, _beta(study, row)
    score = "score"
    if _is_shaped(trainer):
        score = "shaped score (trainer.reward)" if _is_native(study) else "raw proxy score"
    clip = trainer.kl.clip
    paid = PAID[penalty] + ("" if clip is None else f", clipped to ± {number(clip)} nats")
    price = number(beta.at)
    head = f"KL coefficient {price}{beta.words} in the reward: "
    if trainer.algorithm == "ppo":
        return (
            f"{head}each token's reward is − {price} × its {paid}, and the last one's also + {score}, "
            "before the generalised advantages"
        )
    later = "later tokens" if penalty is Penalty.EXACT_FULL else "token and the later ones"
    over = {
        "length-mean": "mean over the tokens of the completion",
        "reward-to-go": f"sum over the {later}",
    }.get(trainer.credit, "sum over the tokens of the completion")
    return f"{head}{score} − {price} × ({over}: {paid}), before the baseline"


def _beside(study: StudyRows, row: TrialRow) -> str:
    divisor = divisor_of(study, row)
    if divisor is None:
        return "beside undivided advantages"
    return f"beside advantages that are divided by {divisor.words}"


def _shaped_only(study: StudyRows, row: TrialRow) -> str:
    """Undivided advantages are as large as the score that was shaped, and so is the coefficient."""
    if not _is_shaped(study.spec.trainer) or divisor_of(study, row) is not None:
        return ""
    return ", for the shaped score that was trained on (trainer.reward)"


def _equation(study: StudyRows, row: TrialRow, coefficient: Span | None) -> str:
    """Where the coefficient comes from, only where the numbers say so."""
    penalty, trainer, beta = row.setting.penalty, study.spec.trainer, _beta(study, row).at
    divisor = divisor_of(study, row)
    if coefficient is None or penalty is None or beta == 0:
        return ""
    if _is_native(study) and not penalty.in_reward:
        return ""  # typed as it stands
    share = baseline_share(trainer.algorithm, trainer.group_size)
    value, words = share * beta, f"beta {number(beta)}"
    if share != 1:
        words += f" × (G − 1) / G, G = {trainer.group_size}"
    if divisor is not None:
        if divisor.value is None:
            return ""
        value /= divisor.value
        words += f" / {divisor.symbol} {number(divisor.value)}"
    return f"; = {words}" if math.isclose(coefficient.at, value, rel_tol=_SAME) else ""


def _number(coefficient: Span | None) -> str:
    return number(None) if coefficient is None else f"{number(coefficient.at)}{coefficient.words}"


def _is_shaped(trainer: TrainerSpec) -> bool:
    return trainer.reward != RewardSpec()


def _is_native(study: StudyRows) -> bool:
    return study.spec.beta_unit is BetaUnit.NATIVE
