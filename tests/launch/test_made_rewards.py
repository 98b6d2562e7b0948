from __future__ import annotations

from pathlib import Path

import pytest

from kltune.errors import SpecError
from kltune.launch.made_rewards import RewardPlace
from kltune.spec.rewards import RecordedSpec
from kltune.tasks.protocol import Prompt, Sample


def test_a_reward_is_made_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("prompt,completion,score\nq,a,2\n")
    place = RewardPlace(lambda text: tmp_path / text, [Prompt("1", "q")])
    scorer = place.make("task.gold", RecordedSpec(recorded="s.csv"))
    assert scorer([Sample(Prompt("1", "q"), "a", (), True)]) == [2.0]
    with pytest.raises(SpecError, match=r"task\.gold: there is no file"):
        place.make("task.gold", RecordedSpec(recorded="t.csv"))
