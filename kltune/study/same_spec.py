"""The spec that a study was begun with and the one given now in, what keeps them from being one study out.

A guard that only warns never changes training, so it may come, go and change; one that stops is part of
every trial.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from kltune.spec.guards import GuardsSpec
from kltune.spec.rewards import as_judged
from kltune.spec.study import StudySpec

FREE_TO_CHANGE = (
    *("budget", "guards.wall", "tracking", "storage", "pruning", "task.timeout", "task.isolate"),
)
"""Parts of a spec that a study may go on with although they changed."""

_AS_EVER = {
    "guards.kl.action": "stop",
    "guards.kl.over": "steps",
    "guards.kl.warmup": 0,
    "task.errors.action": "fail",
    "task.errors.share": 0.1,
    "task.splits.near_duplicates": "warn",
}
"""Fields that older versions did not have, with what these did."""


def kept(spec: StudySpec) -> dict[str, Any]:
    """The spec as plain JSON, without what is free to change."""
    whole: dict[str, Any] = spec.model_dump(mode="json")
    for path in FREE_TO_CHANGE:
        section, _, key = path.partition(".")
        if key:
            whole[section].pop(key, None)
        else:
            whole.pop(section, None)
    # A judge may move, and its budget be raised.
    whole["task"] = as_judged(whole["task"])
    # As the objective resolves it: stop, warn or off.
    whole["guards"]["gold_drop"]["action"] = spec.guards.gold_drop.acts(spec.objective.metric)
    return whole


def differences(begun_with: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One sentence for each difference between what `kept` gave then and gives now."""
    old, new = _flat(begun_with), _flat(now)
    found: list[str] = []
    for name in _stopping_guards(now) - _known_guards(begun_with):
        found.append(
            f"guards.{name}: begun without this guard, which ends trials now: "
            f"--set guards.{name}=warn goes on with the study"
        )
        new = {key: v for key, v in new.items() if not key.startswith(f"guards.{name}.")}
    mute = _mute_guards(begun_with) & _mute_guards(now)
    old, new = _without(old, mute), _without(new, mute)
    for key in sorted(old.keys() | new.keys()):
        is_as_ever = key not in old and new.get(key) == _AS_EVER.get(key)
        if old.get(key) != new.get(key) and not is_as_ever:
            found.append(f"{key}: {_text(old, key)} in the study, {_text(new, key)} now")
    return sorted(found)


def _known_guards(whole: Mapping[str, Any]) -> set[str]:
    return {name for name, value in whole["guards"].items() if isinstance(value, dict)}


def _stopping_guards(whole: Mapping[str, Any]) -> set[str]:
    others = GuardsSpec.model_fields.keys() - {"kl", "wall"}
    return {name for name in others if whole["guards"].get(name, {}).get("action", "off") == "stop"}


def _mute_guards(whole: Mapping[str, Any]) -> set[str]:
    """Those that stop nothing."""
    return GuardsSpec.model_fields.keys() - {"kl", "wall"} - _stopping_guards(whole)


def _without(flat: Mapping[str, Any], guards: set[str]) -> dict[str, Any]:
    return {
        key: value
        for key, value in flat.items()
        if not (key.startswith("guards.") and key.split(".")[1] in guards)
    }


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_walk(tree, ""))


def _walk(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values; lists (choices, ranges) stay whole."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _walk(cast("dict[str, Any]", value), f"{prefix}{key}.")
        elif value not in (None, {}, []):  # nothing given: older versions did not know the field
            yield f"{prefix}{key}", value


def _text(flat: Mapping[str, Any], key: str) -> str:
    return json.dumps(flat[key], ensure_ascii=False) if key in flat else "not given"
