from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec_files import adaptive, minimal, problems_of

from kltune.spec.control import (
    PRESETS,
    CalibrateSpec,
    ControlSpec,
    control_problems,
    stage_factor,
    threshold_rule,
    warmup_steps,
)
from kltune.spec.search import SearchSpec
from kltune.spec.trial import ControllerKind


def steered(kind: str = "proportional", **control: Any) -> dict[str, Any]:
    spec = minimal()
    spec["search"] |= {"controller": kind, "target_kl": 0.05}
    if kind == "proportional":
        spec["search"]["horizon"] = 64
    return {**spec, "control": control}


def without_target(spec: dict[str, Any]) -> dict[str, Any]:
    del spec["search"]["target_kl"]
    return spec


def told(folder: Path, **control: Any) -> list[str]:
    return problems_of(folder, steered("threshold", **control))


def test_the_named_rules_have_their_sources_numbers() -> None:
    # kl-reference.md §2.2
    numbers = {
        kind.value: (p.rule.above, p.rule.below, p.rule.up, p.rule.down, p.rule.every)
        for kind, p in PRESETS.items()
    }
    assert numbers == {
        "threshold-ppo2017": (1.5, pytest.approx(2 / 3), 2, 0.5, 1),
        "threshold-1.2x0.8": (1.2, 0.8, 1.2, 0.8, 5),
        "threshold-1.2x": (1, 0.8, 1.2, pytest.approx(1 / 1.2), 50),
        "threshold-1.5x": (1.5, pytest.approx(2 / 3), 1.5, pytest.approx(2 / 3), 10),
    }


def test_every_threshold_controller_has_a_rule() -> None:
    control = ControlSpec.model_validate({"threshold": {"up": 7}})
    for kind in ControllerKind:
        if kind.is_threshold:
            is_own = kind is ControllerKind.THRESHOLD
            assert (threshold_rule(kind, control).up == 7) is is_own
            assert (kind in PRESETS) is not is_own


def test_a_stage_holds_from_its_share_on() -> None:
    stages = ((0.0, 1.0), (0.1, 2.0), (0.3, 3.0))
    shares = (0, 1 / 20, 2 / 20, 5 / 20, 6 / 20, 1)
    assert [stage_factor(stages, share) for share in shares] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("share", "steps", "warmup"),
    [(0.1, 100, 10), (0.07, 100, 7), (0.29, 100, 29), (0.1, 15, 2), (0.01, 20, 1), (0.99, 20, 20)],
)
def test_the_warm_up_is_the_steps_that_begin_within_its_share(
    share: float, steps: int, warmup: int
) -> None:
    assert warmup_steps(CalibrateSpec(share=share), steps) == warmup
    assert warmup == sum(step / steps < share for step in range(steps))


@pytest.mark.parametrize(
    ("control", "line"),
    [
        ({"threshold": {"above": 0.5}}, "control.threshold.below: must not be above `above` (0.5)"),
        ({"threshold": {"up": 1}}, "control.threshold.up: "),
        ({"threshold": {"down": 1}}, "control.threshold.down: "),
        ({"threshold": {"down": 0}}, "control.threshold.down: "),
        ({"threshold": {"every": 0}}, "control.threshold.every: "),
        ({"ema": 1}, "control.ema: "),
        ({"ema": -0.1}, "control.ema: "),
        ({"beta_min": 0}, "control.beta_min: "),
        ({"beta_min": 1, "beta_max": 1}, "control.beta_min: must be below beta_max = 1 (got 1)"),
        ({"targets": []}, "control.targets: the first pair must start at share 0"),
        ({"targets": [[0.1, 1]]}, "control.targets: the first pair must start at share 0"),
        ({"targets": [[0, 1], [1, 2]]}, "control.targets: shares must rise within 0 (included)"),
        ({"targets": [[0, 1], [0, 2]]}, "control.targets: shares must rise"),
        ({"targets": [[0, 1], [0.5, 2], [0.2, 1]]}, "control.targets: shares must rise"),
        ({"targets": [[0, 0]]}, "control.targets: factors must be above 0 (got 0)"),
        ({"targets": [[0, float("nan")]]}, "control.targets.0.1: "),
        ({"targets": [[0, True]]}, "control.targets.0.1: "),
        ({"schedule": [[0, -1]]}, "control.schedule: factors must be 0 or more (got -1)"),
        ({"calibrate": {"share": 0}}, "control.calibrate.share: "),
        ({"calibrate": {"share": 1}}, "control.calibrate.share: "),
        ({"calibrate": {"factor": 0}}, "control.calibrate.factor: "),
    ],
)
def test_an_impossible_option_is_refused_by_name(
    tmp_path: Path, control: dict[str, Any], line: str
) -> None:
    (got,) = told(tmp_path, **control)
    assert got.startswith(line)


@pytest.mark.parametrize("name", ["target_kl", "horizon"])
@pytest.mark.parametrize("value", ["0", "-1", ".nan"])
def test_an_impossible_target_or_horizon_is_refused_before_any_model(
    tmp_path: Path, name: str, value: str
) -> None:
    # field case A18
    (line,) = problems_of(tmp_path, steered(), f"search.{name}={value}")
    assert line.startswith(f"search.{name}")


@pytest.mark.parametrize("kind", [k.value for k in ControllerKind if k.has_target])
def test_a_controller_that_steers_from_beta_0_is_refused(tmp_path: Path, kind: str) -> None:
    # field case A20
    (line,) = problems_of(tmp_path, steered(kind), "search.beta=0")
    assert line.startswith(f"search.controller: {kind} multiplies beta, so it can't leave beta = 0")


@pytest.mark.parametrize("kind", [k.value for k in ControllerKind if k.has_target])
def test_a_target_is_searched_or_measured_and_not_both(tmp_path: Path, kind: str) -> None:
    spec = steered(kind)
    assert problems_of(tmp_path, spec) == []
    spec["control"] = {"calibrate": {}}
    (line,) = problems_of(tmp_path, spec)
    assert line == (
        "search.target_kl: can't be searched where control.calibrate measures it: "
        "remove one of the two"
    )
    without_target(spec)
    assert problems_of(tmp_path, spec) == []
    del spec["control"]
    (line,) = problems_of(tmp_path, spec)
    assert line == (
        f"search.target_kl: needed, since controller can be {kind} (or measure it: control.calibrate)"
    )


@pytest.mark.parametrize("kind", ["fixed", "schedule"])
def test_a_target_that_nothing_steers_to_is_refused(tmp_path: Path, kind: str) -> None:
    spec = steered(kind)
    lines = problems_of(tmp_path, spec)
    assert lines == [
        f"search.target_kl: has no effect, since controller never steers KL ({kind}): remove it"
    ]


def test_a_target_reaches_every_controller_that_needs_it(tmp_path: Path) -> None:
    spec = adaptive()
    assert problems_of(tmp_path, spec) == []
    spec["search"]["controller"] = {"choice": ["fixed", "proportional", "threshold-1.5x"]}
    (line,) = problems_of(tmp_path, spec)
    assert line.startswith("search.target_kl.when: leaves some trials without a target: prop")
    del spec["search"]["target_kl"]["when"]
    assert problems_of(tmp_path, spec) == []
    when = {"controller": "proportional", "penalty": "k2-loss"}
    spec = adaptive()
    spec["search"]["target_kl"]["when"] = when
    (line,) = problems_of(tmp_path, spec)
    assert line.startswith("search.target_kl.when: can only be {controller: proportional}")


_OPTIONS: dict[str, Any] = {
    "threshold": {"up": 2},
    "schedule": [[0, 2]],
    "ema": 0.5,
    "beta_min": 1e-6,
    "beta_max": 100,
    "targets": [[0, 2]],
    "calibrate": {},
}


@pytest.mark.parametrize(
    ("kind", "used"),
    [
        ("fixed", ()),
        ("schedule", ("schedule",)),
        ("threshold", ("threshold", "ema", "beta_min", "beta_max", "targets", "calibrate")),
        ("threshold-1.5x", ("ema", "beta_min", "beta_max", "targets", "calibrate")),
        ("proportional", ("ema", "beta_min", "beta_max", "targets", "calibrate")),
    ],
)
@pytest.mark.parametrize("option", _OPTIONS)
def test_an_option_of_a_controller_that_never_is_is_refused_by_name(
    tmp_path: Path, kind: str, used: tuple[str, ...], option: str
) -> None:
    spec = steered(kind, **{option: _OPTIONS[option]})
    if option == "calibrate" or kind in ("fixed", "schedule"):
        without_target(spec)
    lines = problems_of(tmp_path, spec)
    if option in used:
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith(f"control.{option}: has no effect, since controller ")


def test_a_recipe_that_steers_gives_its_options_an_effect() -> None:
    search = SearchSpec.model_validate({"beta": 0.1})
    control = ControlSpec(ema=0.5, calibrate=CalibrateSpec())
    alone = control_problems(search, control)
    assert [path for path, _ in alone] == ["control.calibrate", "control.ema"]
    beside = control_problems(search, control, [ControllerKind.PROPORTIONAL])
    assert [path for path, _ in beside] == ["control.calibrate"]


def test_beta_must_start_within_its_bounds(tmp_path: Path) -> None:
    assert told(tmp_path, beta_min=0.001, beta_max=1) == []  # search.beta is .001 to 1
    assert told(tmp_path, beta_min=0.002) == [
        "control.beta_min: is above the lowest beta that a trial starts at, search.beta = 0.001 "
        "(got 0.002)"
    ]
    assert told(tmp_path, beta_max=0.5) == [
        "control.beta_max: is below the highest beta that a trial starts at, search.beta = 1 "
        "(got 0.5)"
    ]
