from __future__ import annotations

import pytest

from kltune.study.asked import Asked
from kltune.study.space import setting_of
from tests.fake_bank import small_spec


@pytest.mark.parametrize(
    ("origin", "is_fixed"),
    [
        ("zero", True),
        ("baseline:verl-ppo", True),
        ("noise:3", True),
        ("sobol", False),
        ("tpe", False),
    ],
)
def test_comparison_arms_are_told_from_what_the_search_chose(origin: str, is_fixed: bool) -> None:
    setting = setting_of({"beta": 0.0}, small_spec())
    asked = Asked(None, 0, 1, origin, setting, None)  # type: ignore[arg-type]
    assert asked.is_fixed is is_fixed
