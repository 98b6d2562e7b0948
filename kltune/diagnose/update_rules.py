"""A run's log in, what its updates say out: gradients that explode, ratios that are clipped. Pure."""

from __future__ import annotations

from kltune.diagnose.result import Sign
from kltune.diagnose.rule import Rule
from kltune.diagnose.runlog import RunLog
from kltune.diagnose.series import first_part, last_part, level, shown
from kltune.grade import Grade
from kltune.symptoms.curve import Quantity

_GRADIENT_FACTOR = 30.0
"""Times the norm of the first steps; warm-up and a reward that begins to differ give less than ten."""
_CLIPPED = 0.5
"""Share of clipped ratios; usual are 0.001 to 0.2."""


def gradient_explodes(run: RunLog) -> Sign | None:
    """The gradient norm ends far above where it began."""
    norms = run.curve.known(Quantity.GRAD_NORM)
    late = last_part(norms)
    before, now = level(first_part(norms)), level(late)
    if len(norms) < _LEAST or before <= 0 or now <= _GRADIENT_FACTOR * before:
        return None
    first = next(step for step, norm in norms if norm > _GRADIENT_FACTOR * before)
    detail = (
        f"gradient norm {shown(now)} in steps {late[0][0]}-{late[-1][0]}, {shown(now / before)} times the "
        f"{shown(before)} of the first steps; above {_GRADIENT_FACTOR:g} times it from step {first} on"
    )
    numbers = {"grad_norm": now, "grad_norm_start": before}
    return Sign("gradient_explosion", Grade.WARN, first, late[-1][0], detail, numbers)


def mostly_clipped(run: RunLog) -> Sign | None:
    """Most ratios lie outside the clip range, so most tokens teach nothing."""
    late = last_part(run.curve.known(Quantity.CLIP_FRAC), share=0.5)
    middle = level(late)
    if middle <= _CLIPPED:
        return None
    detail = f"{middle:.0%} of the ratios are clipped in steps {late[0][0]}-{late[-1][0]} (usual: 0.1 % to 20 %)"
    numbers = {"clip_frac": middle, "limit": _CLIPPED}
    return Sign("clipped_updates", Grade.WARN, late[0][0], late[-1][0], detail, numbers)


_LEAST = 8

RULES: tuple[Rule, ...] = (
    Rule(
        "the gradient norm stays in its range",
        gradient_explodes,
        ((Quantity.GRAD_NORM,),),
        is_optional=True,
        least=_LEAST,
    ),
    Rule(
        "few ratios are clipped",
        mostly_clipped,
        ((Quantity.CLIP_FRAC,),),
        is_optional=True,
        least=_LEAST,
    ),
)
