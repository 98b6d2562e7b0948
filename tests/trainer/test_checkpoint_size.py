"""The estimate against the files that a bank writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from kltune.spec.model import ModelSpec
from kltune.trainer.bank import Bank
from kltune.trainer.checkpoint_size import checkpoint_size


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize(
    "trainer",
    [{}, {"algorithm": "ppo"}, {"algorithm": "ppo", "reference": {"every": 2, "mixture": 0.5}}],
    ids=["grpo", "ppo", "everything"],
)
@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_the_estimate_holds_and_is_no_more_than_some_kilobytes_above(
    tmp_path: Path, trainer: dict[str, object], finetune: str
) -> None:
    model = tiny.loaded()
    spec = ModelSpec.model_validate(
        {
            "base": "builtin:tiny",
            "finetune": finetune,
            **({"rank": 4} if finetune == "lora" else {}),
        }
    )
    settings = tiny.settings(**trainer)
    size = checkpoint_size(model, spec, settings.trainer)
    bank = Bank(model, tiny.task_data(model), settings, spec, 1)
    bank.admit(0, 7, tiny.trial(), None)
    bank.save_checkpoint(0, tmp_path / "last")
    bank.save_adapter(0, tmp_path / "best")
    for name, estimated in (("last", size.last), ("best", size.best)):
        assert 0 <= estimated - bytes_of(tmp_path / name) < 12_000, name
