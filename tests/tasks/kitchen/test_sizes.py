from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kltune.rebuild.kitchen import RECIPES, rebuild

TINY = {"hidden": 16, "feed_forward": 16, "layers": 1, "sft_steps": 2, "sft_batch": 4}


def test_a_size_is_rebuilt_into_its_own_folder_the_same_from_the_same_seed(tmp_path: Path) -> None:
    recipe = replace(RECIPES["large"], **TINY)
    for place in ("one", "two"):
        rebuild(tmp_path / place, 3, "large", recipe)
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["base-large"]  # no proxy
    one, two = (tmp_path / place / "base-large/model.safetensors" for place in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    modes = {path.name: path.stat().st_mode & 0o777 for path in one.parent.iterdir()}
    assert set(modes.values()) == {0o644}, modes


def test_sizes_differ_in_width_and_step_size_alone() -> None:
    widths = {size: (recipe.hidden, recipe.feed_forward) for size, recipe in RECIPES.items()}
    assert widths == {"small": (48, 128), "medium": (96, 256), "large": (192, 512)}
    same = {"hidden": 0, "feed_forward": 0, "sft_learning_rate": 0.0}
    assert len({repr(replace(recipe, **same)) for recipe in RECIPES.values()}) == 1
