"""Seeds are fresh and the same again; designs that can say nothing are refused with advice."""

from __future__ import annotations

import pytest

from kltune.confirm.design import Arm, Design, Role, fresh_seeds, refuse_hopeless
from kltune.errors import SpecError
from kltune.spec.trial import TrialSpec

SETTING = TrialSpec(beta=0.0, learning_rate=1e-3)


def arm(role: Role, stop: int = 20) -> Arm:
    return Arm(None if role == "start" else 1, role, "zero", SETTING, stop)


def test_seeds_are_the_same_for_a_study_distinct_and_not_its_own() -> None:
    seeds = fresh_seeds(0, 50, {0})
    assert fresh_seeds(0, 50, {0}) == seeds
    assert len(set(seeds)) == 50
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert not set(seeds) & set(fresh_seeds(1, 50, {1}))


def test_more_seeds_keep_the_first_ones_so_that_their_runs_are_used_again() -> None:
    assert fresh_seeds(3, 10, {3})[:4] == fresh_seeds(3, 4, {3})


def test_a_seed_that_the_study_used_is_passed_over() -> None:
    first, second, *_ = fresh_seeds(0, 2, ())
    assert fresh_seeds(0, 1, {first}) == (second,)


@pytest.mark.parametrize(
    ("roles", "seeds", "prompts", "told"),
    [
        (("recommended", "baseline"), 2, 64, "--seeds: 2 can't tell"),
        (("recommended", "baseline"), 2000, 64, "--seeds: at most"),
        (("recommended", "baseline"), 10, 0, "0 test prompts.*split"),
        (("recommended", "start"), 10, 64, "use --top 2"),
    ],
)
def test_a_design_that_can_say_nothing_is_refused(
    roles: tuple[Role, ...], seeds: int, prompts: int, told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        refuse_hopeless([arm(role) for role in roles], seeds, prompts)


def test_counts() -> None:
    design = Design(
        (arm("recommended"), arm("baseline", 30), arm("start", 0)), (1, 2, 3), 10, 2, "d"
    )
    refuse_hopeless(design.arms, 3, 10)
    assert design.completions == 3 * 3 * 10 * 2
    assert design.steps == 3 * 50
    assert len(design.trained) == 2
