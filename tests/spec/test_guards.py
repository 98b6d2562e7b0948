from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from spec_files import minimal, problems_of, write

from kltune.spec.guards import GuardsSpec, PatientSpec
from kltune.spec.load import from_resolved, load_spec, resolved
from kltune.spec.study import StudySpec
from kltune.symptoms.gold import gold_drop
from kltune.symptoms.kl import kl_jump, negative_kl
from kltune.symptoms.local import LocalFloors
from kltune.symptoms.proxy import proxy_spread
from kltune.symptoms.scale import pseudo_explosion
from kltune.symptoms.stalled import stalled
from kltune.symptoms.text import entropy_collapse, length_change, repetition, truncation

STOPS = {"jump", "negative_kl", "stalled"}
SWITCHED = [name for name in GuardsSpec.model_fields if name not in ("kl", "wall")]


def guards(**given: Any) -> GuardsSpec:
    return StudySpec.model_validate({**minimal(), "guards": given}).guards


def told(folder: Path, **given: Any) -> list[str]:
    objective = given.pop("objective", {})
    return problems_of(folder, {**minimal(), "objective": objective, "guards": given})


def test_clear_faults_stop_and_the_rest_warns() -> None:
    acts = {n: getattr(guards(), n).action for n in SWITCHED if n != "gold_drop"}
    assert {name for name, action in acts.items() if action == "stop"} == STOPS
    assert set(acts.values()) == {"stop", "warn"}


@pytest.mark.parametrize("name", SWITCHED)
def test_every_guard_is_switched_by_a_word_and_keeps_its_thresholds(name: str) -> None:
    default: PatientSpec = getattr(guards(), name)
    for action in ("warn", "off", "stop"):
        switched: PatientSpec = getattr(guards(**{name: action}), name)
        assert switched == default.model_copy(update={"action": action})


def test_a_word_in_yaml_is_a_word(tmp_path: Path) -> None:
    path = write(tmp_path, minimal())
    path.write_text(path.read_text() + "\n")
    yaml = "guards:\n  stalled: off\n  entropy: {action: stop, patience: 4}\n"
    lines = [
        "name: small", "task: kitchen", "model: {base: 'builtin:kitchen'}", "trainer: {steps: 20}",
        "search: {beta: {log: [0.001, 1]}}", "budget: {trials: 4}", yaml,
    ]  # fmt: skip
    path.write_text("\n".join(lines), encoding="utf-8")
    spec = load_spec(path, ("guards.jump=warn",)).spec
    assert spec.guards.stalled.action == "off"
    assert (spec.guards.entropy.action, spec.guards.entropy.patience) == ("stop", 4)
    assert spec.guards.jump.action == "warn"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"stalled": "of"}, "guards.stalled.action: Input should be 'stop', 'warn' or 'off' (got 'of')"),
        ({"entropy": {"share": 2}}, "guards.entropy.share: Input should be less than 1 (got 2)"),
        ({"jump": {"patience": 0}}, "guards.jump.patience: Input should be greater than 0 (got 0)"),
        ({"jump": {"rise_token": -1}}, "guards.jump.rise_token: Input should be greater than 0 (got -1)"),
        (
            {"kl": {"limit": 1, "over": "step"}},
            "guards.kl.over: Input should be 'steps' or 'evaluations' (got 'step')",
        ),
    ],
)  # fmt: skip
def test_a_bad_value_names_field_value_and_what_is_allowed(
    tmp_path: Path, given: dict[str, Any], line: str
) -> None:
    assert told(tmp_path, **given) == [line]


def test_an_unknown_guard_or_threshold_is_refused_with_a_hint(tmp_path: Path) -> None:
    (line,) = told(tmp_path, staled="off")
    assert "did you mean guards.stalled?" in line
    (line,) = told(tmp_path, length={"shrink": 0.5})
    assert line.startswith("guards.length.shrink: Extra inputs are not permitted (got 0.5)")


def test_a_truth_value_is_no_action(tmp_path: Path) -> None:
    (line,) = told(tmp_path, stalled=False)
    assert line.startswith("guards.stalled: ")


def test_the_gold_drop_stops_only_where_an_early_end_leaves_the_value_alone(tmp_path: Path) -> None:
    drop = guards().gold_drop
    assert [drop.acts(m) for m in ("gold_peak", "gold_final", "gold_mean")] == [
        "stop",
        "warn",
        "warn",
    ]
    (line,) = told(tmp_path, gold_drop="stop", objective={"metric": "gold_final"})
    assert line.startswith(
        "guards.gold_drop.action: stop does not go with objective.metric gold_final"
    )
    for action in ("warn", "off"):
        assert told(tmp_path, gold_drop=action, objective={"metric": "gold_final"}) == []


def test_the_kl_guard_takes_the_limit_of_the_objective(tmp_path: Path) -> None:
    objective = {"metric": "gold_peak", "kl_limit": 0.5}
    spec = {**minimal(), "objective": objective}
    for given, limit, action in (({}, 0.5, "stop"), ({"kl": "warn"}, 0.5, "warn"),
                                 ({"kl": {"limit": 2}}, 2, "stop")):  # fmt: skip
        guard = StudySpec.model_validate({**spec, "guards": given}).kl_guard
        assert guard is not None
        assert (guard.limit, guard.action) == (limit, action)
    assert StudySpec.model_validate({**spec, "guards": {"kl": "off"}}).kl_guard is None
    (line,) = told(tmp_path, kl="warn")
    assert line.startswith("guards.kl.limit: needed, since objective.kl_limit is not given either")
    assert told(tmp_path, kl="off") == []


def test_a_resolved_spec_reads_back_the_same() -> None:
    for objective in ({"metric": "gold_final"}, {"kl_limit": 0.5}):
        spec = StudySpec.model_validate({**minimal(), "objective": objective})
        assert from_resolved(resolved(spec)) == spec


@pytest.mark.parametrize(
    ("name", "rule", "aside"),
    [
        ("jump", kl_jump, set()),
        ("negative_kl", negative_kl, set()),
        ("stalled", stalled, {"beta_in_reward"}),
        ("pseudo_explosion", pseudo_explosion, set()),
        ("gold_drop", gold_drop, {"unit"}),
        ("entropy", entropy_collapse, set()),
        ("repetition", repetition, set()),
        ("length", length_change, set()),
        ("truncation", truncation, set()),
        ("local_kl", LocalFloors, set()),
        ("proxy_spread", proxy_spread, set()),
    ],
)
def test_guards_and_diagnose_have_the_same_thresholds(
    name: str, rule: Callable[..., object], aside: set[str]
) -> None:
    guard = getattr(GuardsSpec(), name)
    parameters = inspect.signature(rule).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    assert defaults
    assert {n: v for n, v in defaults.items() if n not in aside} == {
        n: getattr(guard, n) for n in defaults if n not in aside
    }


def test_a_switch_for_all_guards_is_told_how_to_name_them() -> None:
    with pytest.raises(
        ValidationError, match=r"one action each, like \{stalled: off\}.*proxy_spread"
    ):
        GuardsSpec.model_validate("off")
