from __future__ import annotations

from kltune.guard.alarm import Action
from kltune.spec.guards import GuardsSpec, KLGuardSpec


def test_every_action_of_a_spec_is_an_action() -> None:
    spec = GuardsSpec(kl=KLGuardSpec(limit=1.0, action="warn"))
    given = [getattr(spec, name).action for name in type(spec).model_fields if name != "wall"]
    assert {Action(one) for one in given if one is not None} == {Action.STOP, Action.WARN}
    assert Action("off") is Action.OFF
