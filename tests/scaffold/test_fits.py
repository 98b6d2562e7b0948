from __future__ import annotations

import json
from pathlib import Path

import pytest

from kltune.scaffold.fits import fit_horizon, fit_lengths, fit_updates
from kltune.scaffold.sound import checked
from kltune.scaffold.start import Answers, start_draft
from kltune.spec.doubts import find_doubts

HERE = Path("spec.yaml")


def test_horizons_last_as_many_steps_at_any_group_size() -> None:
    draft = start_draft(Answers("a"))
    assert fit_horizon(draft) == draft
    wide = fit_horizon(draft.put("trainer.group_size", 64))
    spec = checked(wide, HERE).spec
    assert spec.search.horizon is not None
    assert spec.search.horizon.log == (512, 51_200)


def test_with_several_updates_per_rollout_no_searched_penalty_lacks_the_ratio() -> None:
    draft = start_draft(Answers("a"))
    assert fit_updates(draft) == draft
    for name in ("epochs", "minibatches"):
        several = draft.put(f"trainer.{name}", 2)
        assert find_doubts(checked(several, HERE).spec) != []
        assert find_doubts(checked(fit_updates(several), HERE).spec) == []


@pytest.mark.parametrize(
    ("answers", "room"),
    [
        (Answers("a"), 112),
        (Answers("a", model="builtin:kitchen-large"), 112),
        (Answers("a", "everyday"), 8128),
        (Answers("a", None, model="folder"), 50),
    ],
)
def test_completions_leave_prompts_their_room_and_it_is_said(
    tmp_path: Path, answers: Answers, room: int
) -> None:
    (tmp_path / "folder").mkdir()
    config = json.dumps({"max_position_embeddings": 100})
    (tmp_path / "folder" / "config.json").write_text(config, encoding="utf-8")
    spec_path = tmp_path / "spec.yaml"
    draft = start_draft(answers).put("trainer.max_new_tokens", room)
    assert fit_lengths(draft, answers, spec_path) == draft
    cut = fit_lengths(draft.put("trainer.max_new_tokens", 9000), answers, spec_path)
    line = cut.get("trainer.max_new_tokens")
    assert line is not None
    assert (line.value, line.comment[:9]) == (room, "not 9000:")
    assert cut.warnings[0].startswith(
        f"trainer.max_new_tokens: {room} instead of 9000: the model has"
    )


@pytest.mark.parametrize("config", [None, "{", "[]", '{"max_position_embeddings": null}'])
def test_a_model_whose_positions_are_not_known_leaves_the_lengths_alone(
    tmp_path: Path, config: str | None
) -> None:
    answers = Answers("a", None, model="folder")
    if config is not None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "config.json").write_text(config, encoding="utf-8")
    draft = start_draft(answers).put("trainer.max_new_tokens", 9000)
    assert fit_lengths(draft, answers, tmp_path / "spec.yaml") == draft
