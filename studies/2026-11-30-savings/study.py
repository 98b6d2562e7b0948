"""What a sweep saves: gold of the setting that it recommends against random choice and known recipes, and the time it takes.

    python studies/2026-11-30-savings/study.py    under an hour on two cores that do nothing else

Eight sweeps of sweeps/kitchen.yaml, each from a seed of its own; then what they recommend, random
settings of the same space and the recipes, on fresh seeds; then two of the sweeps with one trial at a time.
``sweeps.json`` holds what each sweep said, ``runs.csv`` the fresh runs, ``walls.json`` the times;
further flags as in studies/experiment.py.

This is the second round. The first (``first_*``: sweeps of 16 trials, three fresh seeds) had intervals too wide to say
anything. All that is compared, and how, was written down before the second began; its seeds are all new.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from experiment import ROOT, Block, Study, main
from savings_analysis import analyse
from savings_arms import NO_KL, RECIPES
from savings_figures import draw
from savings_tables import tables

import kltune
from kltune.report.compare import value_interval
from kltune.spec.load import load_spec
from kltune.study.space import setting_of, sobol_params

SWEEP_SEEDS = range(210, 218)
"""Of the sweeps. Fixed before the first run of this round, like all that follow."""
FRESH_SEEDS = range(410, 418)
"""Of the runs that judge; no sweep saw them."""
WALL_SEEDS = SWEEP_SEEDS[:2]
"""Of the sweeps that are made once more with one trial at a time."""
RANDOM_SEED, RANDOM = 998, 8
"""Scrambled Sobol points of the sweep's own space."""
SPEC = ROOT / "sweeps" / "kitchen.yaml"
FOLDER = Path(__file__).parent


def sweep_all(small: bool, out: Path) -> None:
    """Run the sweeps, or what is missing of them, and note what each said."""
    changes = {**SMALL, "budget.trials": 5, "budget.workers": 1} if small else {}
    found = [
        said(kltune.sweep(SPEC, seed=seed, study=out / "sweeps" / str(seed), set=changes), seed)
        for seed in (SWEEP_SEEDS[:1] if small else SWEEP_SEEDS)
    ]
    (out / "sweeps.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def sweep_alone(small: bool, out: Path) -> None:
    """The same sweeps with one trial at a time, for their time."""
    changes = {**SMALL, "budget.trials": 5} if small else {}
    found: list[dict[str, Any]] = []
    for seed in WALL_SEEDS[:1] if small else WALL_SEEDS:
        folder = out / "sweeps" / f"{seed}-alone"
        study = kltune.sweep(SPEC, seed=seed, study=folder, set=changes, workers=1, slots=1)
        found.append(
            {"seed": seed, "wall_s": wall_s(study), "steps": int(study.trials["steps"].sum())}
        )
    (out / "walls.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def wall_s(study: kltune.Study) -> float:
    """Seconds of the sweep's process, all sessions."""
    timing = json.loads((study.path / "timing.json").read_text(encoding="utf-8"))
    return float(timing["wall_s"])


def said(study: kltune.Study, seed: int) -> dict[str, Any]:
    """The recommendation of a sweep as its report gives it, and what the sweep cost."""
    best = study.best
    assert best is not None, f"the sweep of seed {seed} recommends nothing"
    report = json.loads((study.path / "report.json").read_text(encoding="utf-8"))["best"]
    interval = value_interval(best, study.spec.objective, study.spec.kl_unit)
    assert interval is not None, f"the sweep of seed {seed} gives no interval"
    trials, length = study.trials, study.spec.trainer.steps
    return {
        "seed": seed,
        "trial": best.number,
        "origin": best.origin,
        "setting": best.setting.model_dump(mode="json", exclude={"seed"}),
        "stop_first_step": report["stop_first_step"],
        "stop_last_step": report["stop_last_step"],
        "stop_kl_seq": report["kl_seq"],
        "value": report["value"],
        "value_low": interval[0],
        "value_high": interval[1],
        "wall_s": wall_s(study),
        "trials": len(trials),
        "trial_steps": length,
        "steps": int(trials["steps"].sum()),
        "ended": trials["reason"].value_counts().to_dict(),
        "spared": {
            str(reason): int((length - rows["steps"]).sum())
            for reason, rows in trials.groupby("reason", observed=True)
        },
    }


def blocks(small: bool, out: Path) -> dict[str, Block]:
    """Recommended, random and known settings on fresh seeds."""
    sweeps = json.loads((out / "sweeps.json").read_text(encoding="utf-8"))
    arms: dict[str, str | dict[str, object]] = {NO_KL: {"beta": 0.0}}
    arms |= {f"sweep {one['seed']}": one["setting"] for one in sweeps}
    arms |= random_settings(1 if small else RANDOM)
    arms |= {name: name for name in (RECIPES[:1] if small else RECIPES)}
    return {"fresh": Block(arms, FRESH_SEEDS[:2] if small else FRESH_SEEDS, SMALL if small else {})}


SMALL = {
    "model.base": "builtin:kitchen-small",
    "trainer.steps": 24,
    "evaluate": {"every": 8, "prompts": 26, "samples": 2},
}


def random_settings(num: int) -> dict[str, dict[str, object]]:
    """Points of the sweep's space that nothing has looked at."""
    spec = load_spec(SPEC).spec
    drawn = sobol_params(spec.search, num, RANDOM_SEED)
    skipped = {"seed", "learning_rate"}
    return {
        f"random {i}": setting_of(params, spec).model_dump(mode="json", exclude=skipped)
        for i, params in enumerate(drawn)
    }


STUDY = Study(
    FOLDER,
    blocks,
    analyse,
    draw,
    tables,
    prepare=sweep_all,
    finish=sweep_alone,
    more=("sweeps.json", "walls.json"),
    spec=str(SPEC),
)

if __name__ == "__main__":
    main(STUDY)
