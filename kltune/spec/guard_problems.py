"""Guards and an objective in, what they can't do together out."""

from __future__ import annotations

from kltune.spec.guards import GuardsSpec


def guard_problems(
    guards: GuardsSpec, metric: str, kl_limit: float | None
) -> list[tuple[str, str]]:
    """What the guards can't do under an objective, as pairs of field and sentence.

    ``metric`` and ``kl_limit`` are ``objective.metric`` and ``objective.kl_limit``.
    """
    problems: list[tuple[str, str]] = []
    if guards.gold_drop.action == "stop" and metric == "gold_final":
        text = (
            "stop does not go with objective.metric gold_final, which judges the end of a whole trial: "
            "use warn or off, or objective.metric gold_peak"
        )
        problems.append(("guards.gold_drop.action", text))
    kl = guards.kl
    if kl is not None and kl.action != "off" and kl.limit is None and kl_limit is None:
        text = "needed, since objective.kl_limit is not given either; or guards.kl: off"
        problems.append(("guards.kl.limit", text))
    return problems
