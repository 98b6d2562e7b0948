"""A confirmation and a comparison over sizes as their commands would leave them, and lines of each grade."""

from __future__ import annotations

from dataclasses import replace

from kltune.confirm.result import Against, ArmFacts, ConfirmResult, Gate, Judgement, Place
from kltune.grade import Grade
from kltune.statistics.confirmation import Verdict
from kltune.statistics.drift import Interval
from kltune.transfer.result import Kind, Quantity, Sized, TransferResult
from kltune.validate.result import Line, Validation


def arm(number: int, role: str, name: str) -> ArmFacts:
    return ArmFacts(
        number=number, role=role, origin="sobol", name=name, setting={"beta": 0.1}, stop=40,
        select_value=1.0, select_gold=1.0, kl_token=0.2, kl_seq=2.5, kl_token_by_seed=(0.2, 0.2),
        over_limit=0, proxy=0.5, diverged=0,
    )  # type: ignore[arg-type]  # fmt: skip


def place(index: int, gold: float) -> Place:
    return Place(index, gold, gold - 0.1, gold + 0.1, 0.05, (gold, gold), gold)


def confirmation(
    number: int = 4, verdict: Verdict = "stays", gates: tuple[Gate, ...] = ()
) -> ConfirmResult:
    names = (f"trial {number}", "recipe verl-ppo")
    against = Against(1, "baseline", 0.12, 0.03, 0.21, 0.01, True, True, 9)
    judgement = Judgement(
        "kitchen-gold", names, (place(0, 1.1), place(1, 0.98)), (against,), verdict,
        1 if verdict == "changes" else 0, 0.1, 0.2, "pooled",
    )  # fmt: skip
    arms = (arm(number, "recommended", names[0]), arm(1, "baseline", names[1]))
    return ConfirmResult(
        study="kitchen", seeds=(7, 8, 9), num_prompts=256, samples=2, digest="d", arms=arms,
        judgements=(judgement,), kl_limit=0.5, kl_unit="token", looks=1, gates=gates, notes=(),
        seconds=9.0,
    )  # fmt: skip


def comparison(kind: Kind = Kind.TRANSFERS, study: str = "kitchen") -> TransferResult:
    sized = Sized(study, "builtin:kitchen", 10_000, 3e-3, 0.8, 24, 24)
    one = Interval(1.1, 0.7, 1.6)
    beta = Quantity(
        "beta", "the best beta", "reward per nat", (one, one), one, (one,), one, kind, "In words."
    )
    return TransferResult((sized, replace(sized, study="larger")), (), 0, (), (beta,))


def line(grade: Grade, text: str = "something") -> Line:
    return Line(grade.value, text, grade, 1.5, "gold", f"1.5 gold {text}", text, text, text)


def validation(*grades: Grade, text: str = "something") -> Validation:
    return Validation("kitchen", f"Trial 4: {text}", tuple(line(g, text) for g in grades), (text,))
