from __future__ import annotations

import numpy as np
import pytest

from kltune.frameworks.samples import Samples
from kltune.frameworks.survey import survey

ROWS = Samples(
    np.array([[0.1, 0.2, 0.3], [0.4, 0.0, 0.0]]),
    np.zeros((2, 3)),
    np.array([[True, True, True], [True, False, False]]),
)


def test_every_framework_is_asked_under_its_own_metric_name() -> None:
    found = {(log.framework.split()[0], log.metric) for log in survey(ROWS)}
    assert found == {
        ("TRL", "kl"),
        ("TRL", "objective/kl"),
        ("verl", "actor/kl_loss"),
        ("verl", "actor/reward_kl_penalty"),
        ("OpenRLHF", "kl"),
        ("NeMo-RL", "kl_penalty"),
    }


def test_the_same_samples_give_different_numbers_and_each_has_its_unit() -> None:
    k1 = {
        (log.framework.split()[0], log.metric): log.logged
        for log in survey(ROWS)
        if log.setting in ("RLOO", "PPO", "use_kl_in_reward, kl")
    }
    assert k1["TRL", "kl"].value == pytest.approx(0.25)  # field case A22
    assert k1["TRL", "objective/kl"].value == pytest.approx(0.5)
    assert k1["verl", "actor/reward_kl_penalty"].value == pytest.approx(0.3)
    assert all(log.logged.unit and log.logged.definition for log in survey(ROWS))
