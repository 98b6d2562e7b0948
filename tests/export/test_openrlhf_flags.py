from __future__ import annotations

import pytest
from export_case import target, winner

from kltune.export.openrlhf_flags import flag


@pytest.mark.parametrize(
    ("version", "kl", "length"),
    [
        ("0.8.3", "--init_kl_coef", "--generate_max_len"),
        ("0.9.10", "--init_kl_coef", "--max_new_tokens"),
        ("0.10.0", "--init_kl_coef", "--max_new_tokens"),
        ("0.10.2", "--algo.kl.init_coef", "--rollout.max_new_tokens"),
        ("0.11.0", "--algo.kl.init_coef", "--rollout.max_new_tokens"),
    ],
)
def test_a_flag_has_the_name_of_its_release(version: str, kl: str, length: str) -> None:
    where = target(winner(), "openrlhf", version)
    assert flag(where, "--algo.kl.init_coef", 0.1, "x").name == kl
    assert flag(where, "--rollout.max_new_tokens", 32, "x", is_set=False).name == length
