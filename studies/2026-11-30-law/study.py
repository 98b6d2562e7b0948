"""The over-optimisation law: how peak KL and height of gold depend on the proxy, and what beta changes.

python studies/2026-11-30-law/study.py    about 15 minutes on two cores; flags: studies/experiment.py
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import law_figures
import pandas as pd
from experiment import Block, Study, main, read_table
from law_analysis import analyse
from law_arms import DRAWS, LEVELS, NO_KL, PRICED, SMALL_LEVELS, Proxy, block_name, level_of
from law_tables import tables

from kltune.spec.load import load_spec

PENALTIES = Path(__file__).parents[1] / "2026-11-30-penalties" / "runs.csv"
"""Read beside this folder's own tables: runs of no KL and k1-reward under the shipped proxy, seeds 100 to 107."""
RUN_SEED = 100
"""Draw i is trained with seed RUN_SEED + i."""
COMPLETIONS = 128
"""Of each prompt and draw, for best-of-n."""
SMALL_SIZE: dict[str, object] = {"trainer.steps": 10}
"""Scaled down for the tests."""


def blocks(small: bool, _out: Path) -> dict[str, Block]:
    """A block for each draw of each level: its proxy is learned anew."""
    found: dict[str, Block] = {}
    levels, draws, fit, size = (
        (SMALL_LEVELS, DRAWS[:2], 30, SMALL_SIZE) if small else (LEVELS, DRAWS, 150, {})
    )
    for proxy in levels:
        for i, draw in enumerate(draws):
            arms: dict[str, dict[str, object]] = {NO_KL: {"beta": 0.0}}
            if proxy == Proxy() and not small:
                arms[PRICED] = {"beta": 0.15, "penalty": "k1-reward"}
            found[block_name(proxy, draw)] = Block(
                arms, (RUN_SEED + i,), {**_learned(proxy, fit), "seed": draw, **size}
            )
    return found


def _learned(proxy: Proxy, steps: int) -> dict[str, object]:
    fields: dict[str, object] = {
        "from": "gold",
        "comparisons": proxy.comparisons,
        "label_noise": proxy.noise,
        "steps": steps,
        "layers": proxy.layers,
    }
    return {"task": {"builtin": "kitchen", "proxy": {"learned": fields}}}


def finish(small: bool, out: Path) -> None:
    """bon.csv and proxies.csv, from the proxies that the runs learned."""
    law_bon = importlib.import_module("law_bon")  # loads torch

    levels = SMALL_LEVELS if small else LEVELS

    def proxies(draw: int) -> dict[str, Path]:
        found = {p: out / "runs" / block_name(p, draw) / "artifacts" / "proxy" for p in levels}
        return {level_of(block_name(p, draw)): path for p, path in found.items() if path.is_dir()}

    # The levels share prompts and completions with each other, so that they are compared draw by draw.
    draws = (
        law_bon.Draws(DRAWS[:2], 8, 24, 8) if small else law_bon.Draws(DRAWS, COMPLETIONS, 64, 32)
    )
    size = tuple(f"{key}={value}" for key, value in SMALL_SIZE.items()) if small else ()
    spec = load_spec(Path(__file__).parent / "spec.yaml", size)
    bon, facts = law_bon.trace_proxies(spec, proxies, draws)
    bon.to_csv(out / "bon.csv", index=False, float_format="%.5g")
    facts.to_csv(out / "proxies.csv", index=False, float_format="%.5g")


def penalty_runs() -> pd.DataFrame | None:
    """`PENALTIES`; None where this folder was copied alone, and what they say is left out."""
    return read_table(PENALTIES) if PENALTIES.is_file() else None


def analyse_tables(
    runs: pd.DataFrame, _steps: pd.DataFrame, bon: pd.DataFrame, proxies: pd.DataFrame
) -> dict[str, Any]:
    """Results of this folder's tables and of `PENALTIES`."""
    return analyse(runs, bon, proxies, penalty_runs())


def draw(runs: pd.DataFrame, _steps: pd.DataFrame, results: dict[str, Any], out: Path) -> None:
    """The figures, of runs.csv and bon.csv in ``out`` and of `PENALTIES`."""
    law_figures.draw(runs, read_table(out / "bon.csv"), penalty_runs(), results, out)


STUDY = Study(
    Path(__file__).parent,
    blocks,
    analyse_tables,
    draw,
    tables,
    finish=finish,
    more=("bon.csv", "proxies.csv"),
    processes=2,
)

if __name__ == "__main__":
    main(STUDY)
