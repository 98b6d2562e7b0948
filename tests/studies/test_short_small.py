"""The study of short and small looks, scaled down."""

from __future__ import annotations

import json
import sys

import pandas as pd
import pytest
from studies_case import STUDIES, load_script, run_small

sys.path.insert(0, str(STUDIES))  # as the script does it
sys.path.insert(0, str(STUDIES / "2026-11-30-short-small"))

from short_small_arms import arm


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return run_small("2026-11-30-short-small", tmp_path_factory.mktemp("short-small"))


@pytest.mark.slow
class TestScaledDown:
    def test_a_beta_that_is_far_too_large_is_seen_early_and_on_the_small_model(self, small):
        for model in ("small", "medium"):
            assert small["early"][model]["0.5"]["at_end"]["all_choose"] == arm(0.15)
        assert small["small"]["small"]["0.5"]["at_end"]["seeds"]["1"]["chosen"] == {arm(0.15): 1.0}
        assert small["best"]["at_end"] == arm(0.15)
        # One test, so that two processes don't both train.
        for own in small["models"].values():
            kl = [own["arms"][arm(b)]["kl_end"]["mean"] for b in (0.15, 5.0)]
            assert kl[1] < kl[0] / 3


def test_a_scaled_down_run_is_timed_by_the_step(tmp_path):
    """As the study's own timing.json; 4 runs of 16 steps in 32 seconds."""
    block = {"arms": {"a": {}, "b": {}}, "seeds": [1, 2], "wall_s": 32.0}
    (tmp_path / "machine.json").write_text(json.dumps({"blocks": {"small": block}}))
    pd.DataFrame({"block": "small", "arm": "a", "step": [0, 8, 16]}).to_csv(tmp_path / "runs.csv")

    load_script("2026-11-30-short-small").keep_step_s(True, tmp_path)

    assert json.loads((tmp_path / "timing.json").read_text()) == {"small": 0.5}
