"""What the studies' scripts share: flags, the runs of an experiment, and the tables that are made of them.

    python studies/NAME/study.py               train what is missing, then all below
    python studies/NAME/study.py --analyse     results.json and the figures from the tables in the folder
    python studies/NAME/study.py --small --out FOLDER    scaled down, as the tests do it; minutes

A study is some *blocks*: settings x seeds on one spec. Every run is in ``runs.csv`` (one row an
evaluation) and, where a study looks at controllers, in ``steps.csv`` (one row a step).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from experiment_tables import filled

import kltune

ROOT = Path(__file__).parents[1]

EVALS = {
    "eval/gold": "gold",
    "eval/proxy": "proxy",
    "eval/kl_seq": "kl_seq",
    "eval/kl_token": "kl_token",
    "eval/entropy_token": "entropy_token",
    "eval/completion_mean": "tokens",
}
"""Columns of runs.csv by the metric's name; KL in nats, against the reference, exact per position."""
STEPS = {
    "kl/exact_seq": "kl_seq",
    "kl/exact_token": "kl_token",
    "ctrl/beta": "beta",
    "train/proxy_mean": "proxy",
}
"""Columns of steps.csv; beta in raw reward per nat of sequence KL."""
DIGITS = 5
"""Significant digits of a number in the tables."""


ALONE: Mapping[str, object] = {"budget.workers": 1, "budget.slots": 1}
"""One run at a time, in this process."""


@dataclass(frozen=True)
class Block:
    """Settings x seeds on one spec."""

    arms: Mapping[str, str | Mapping[str, object]]
    seeds: Sequence[int]
    set: Mapping[str, object] = field(default_factory=dict)
    """Laid on the spec."""


@dataclass(frozen=True)
class Study:
    """One folder below studies/."""

    folder: Path
    blocks: Callable[[bool, Path], Mapping[str, Block]]
    """``(small, out)``: of the study as it is reported, or scaled down for the tests. ``out`` is for what
    depends on `prepare`."""
    analyse: Callable[..., dict[str, Any]]
    """runs.csv and steps.csv (and the files of `more`) in, results.json out."""
    draw: Callable[[pd.DataFrame, pd.DataFrame, dict[str, Any], Path], None] | None = None
    """Writes the figures into a folder."""
    tables: Callable[[dict[str, Any]], Mapping[str, str]] | None = None
    """results.json in, Markdown by name out: it takes its place in README.md between ``<!-- NAME -->`` and ``<!-- /NAME -->``."""
    prepare: Callable[[bool, Path], None] | None = None
    """``(small, out)``: what is done before the blocks are known."""
    finish: Callable[[bool, Path], None] | None = None
    """``(small, out)``: writes further tables from the records, once runs.csv is there."""
    more: tuple[str, ...] = ()
    """Further files in the folder that `analyse` is given, in this order: a CSV as a table, a JSON as a mapping."""
    keeps_steps: bool = False
    spec: str = "spec.yaml"
    """Where it lies in the folder."""
    processes: int = 1
    """Blocks at once, of one thread each; 1: one after the other, over all cores."""


def run_study(study: Study, out: Path, *, small: bool = False) -> dict[str, Any]:
    """Train what is missing below ``out``, write the tables there; return what was found."""
    out.mkdir(parents=True, exist_ok=True)
    if study.prepare is not None:
        study.prepare(small, out)
    blocks = study.blocks(small, out)
    jobs = [
        (study.folder / study.spec, name, block, out / "runs" / name)
        for name, block in blocks.items()
    ]
    if study.processes > 1 and not small:
        os.environ["OMP_NUM_THREADS"] = "1"  # heard by processes that are started from here
        with ProcessPoolExecutor(study.processes) as pool:
            list(pool.map(_run_alone, jobs))
    else:
        for job in jobs:
            _run(job, ALONE if small else None)
    write_tables(blocks, out, keeps_steps=study.keeps_steps)
    if study.finish is not None:
        study.finish(small, out)
    return analyse_study(study, out)


def write_tables(blocks: Mapping[str, Block], out: Path, *, keeps_steps: bool) -> None:
    """runs.csv, where asked steps.csv, and machine.json (sigma_R, seconds, a learned proxy's facts) from the records."""
    opened = {name: kltune.open_arms(out / "runs" / name) for name in blocks}
    _write_table({name: arms.evals for name, arms in opened.items()}, EVALS, out / "runs.csv")
    if keeps_steps:
        _write_table({name: arms.steps for name, arms in opened.items()}, STEPS, out / "steps.csv")
    facts = {
        name: {
            "arms": arms.facts["arms"],
            "seeds": arms.facts["seeds"],
            "scale": arms.facts["scale"],
            "wall_s": arms.facts["wall_s"],
            "ends": arms.ends["reason"].value_counts().to_dict(),
            **_proxy_facts(arms.path),
        }
        for name, arms in opened.items()
    }
    env = next(iter(opened.values())).facts["env"]
    (out / "machine.json").write_text(
        json.dumps({"env": env, "blocks": facts}, indent=1) + "\n", encoding="utf-8"
    )


def analyse_study(study: Study, out: Path) -> dict[str, Any]:
    """results.json and figures from the tables in ``out``; nothing is written where they can't be made."""
    runs = read_table(out / "runs.csv")
    steps = read_table(out / "steps.csv") if study.keeps_steps else pd.DataFrame()
    results = study.analyse(runs, steps, *(_read_more(out / name) for name in study.more))
    if study.draw is not None:
        study.draw(runs, steps, results, out)
    write_results(results, out / "results.json")
    readme = out / "README.md"
    if study.tables is not None and readme.is_file():
        text = filled(readme.read_text(encoding="utf-8"), study.tables(read_results(out)))
        readme.write_text(text, encoding="utf-8")
    return results


def read_table(path: Path) -> pd.DataFrame:
    """runs.csv or steps.csv: names of arms and blocks are texts, also one that is called 0.1 or None."""
    return pd.read_csv(
        path, dtype={"block": str, "arm": str}, keep_default_na=False, na_values=[""]
    )


def table_problem(study: Study, out: Path) -> str | None:
    """What keeps the tables in ``out`` from being analysed: a file that is absent or cut, a run that is not there."""
    tables = ("runs.csv", "steps.csv") if study.keeps_steps else ("runs.csv",)
    names = (*tables, "machine.json", *study.more)
    if absent := [name for name in names if not (out / name).is_file()]:
        return f"{out} holds no {', '.join(absent)}"
    if cut := [name for name in names if not (out / name).read_bytes().endswith(b"\n")]:
        return f"{out}: {', '.join(cut)} is empty or cut: its last line has no end"
    blocks = json.loads((out / "machine.json").read_text(encoding="utf-8"))["blocks"]
    planned = {
        (name, arm, seed)
        for name, block in blocks.items()
        for arm in block["arms"]
        for seed in block["seeds"]
    }
    for name in tables:
        table = read_table(out / name)
        keys = table[["block", "arm", "seed"]].drop_duplicates()
        missing = sorted(planned - set(keys.itertuples(index=False, name=None)))
        if missing:
            block, arm, seed = missing[0]
            first = f"{block}, {arm}, seed {seed}"
            return f"{out / name}: {len(missing)} of {len(planned)} runs are absent, the first: {first}"
    return None


def read_results(out: Path) -> dict[str, Any]:
    """results.json, which every figure in a text comes from."""
    found: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return found


def curves(runs: pd.DataFrame, column: str, block: str | None = None) -> dict[str, Any]:
    """Values by arm, S x C: seeds in rising order, evaluations of a whole run; one that ended early keeps its last.

    Blocks that share an arm and a seed must be asked for one by one.
    """
    mine = runs if block is None else runs[runs["block"] == block]
    last = mine.groupby(["arm", "seed"])["step"].transform("max")
    whole = sorted(mine.loc[last == last.max(), "step"].unique())  # not where a run broke off
    found = {}
    for arm, rows in mine.groupby("arm", sort=False):
        table = rows.pivot(index="seed", columns="step", values=column)
        table = table.reindex(columns=sorted({*table.columns, *whole})).ffill(axis=1)
        found[str(arm)] = table[whole].to_numpy()
    return found


def write_results(results: Mapping[str, Any], path: Path) -> None:
    """Strict JSON with numbers of `DIGITS` significant digits."""
    text = json.dumps(_rounded(results), indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def main(study: Study) -> None:
    """The script's command line."""
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog=__doc__
    )
    parser.add_argument(
        "--out", type=Path, default=study.folder, help="default: the study's folder"
    )
    parser.add_argument("--small", action="store_true", help="scaled down; needs --out")
    parser.add_argument("--analyse", action="store_true", help="train nothing")
    args = parser.parse_args()
    if args.small and args.out.resolve() == study.folder.resolve():
        parser.error("--small: give another --out, so that the study's own tables stay")
    if args.analyse and (problem := table_problem(study, args.out)):
        parser.error(f"--analyse: {problem}")
    if args.analyse:
        analyse_study(study, args.out)
    else:
        run_study(study, args.out, small=args.small)
    sys.stderr.write(f"written: {args.out}\n")


def _run(job: tuple[Path, str, Block, Path], more: Mapping[str, object] | None = None) -> None:
    spec, _, block, out = job
    kltune.run_arms(
        spec, arms=block.arms, seeds=block.seeds, out=out, set={**block.set, **(more or {})}
    )


def _run_alone(job: tuple[Path, str, Block, Path]) -> None:
    import torch

    torch.set_num_threads(1)
    _run(job, ALONE)


def _write_table(
    tables: Mapping[str, pd.DataFrame], columns: Mapping[str, str], path: Path
) -> None:
    parts = [
        table.rename(columns=dict(columns))[["arm", "seed", "step", *columns.values()]].assign(
            block=name
        )
        for name, table in tables.items()
    ]
    whole = pd.concat(parts, ignore_index=True)
    whole = whole[["block", "arm", "seed", "step", *columns.values()]]
    whole.to_csv(path, index=False, float_format=f"%.{DIGITS}g")


def _proxy_facts(folder: Path) -> dict[str, Any]:
    """Of a proxy that was learned for the block: comparisons, noise, accuracy on held-out (noisy) labels."""
    path = folder / "artifacts" / "proxy" / "reward.json"
    return {"proxy": json.loads(path.read_text(encoding="utf-8"))} if path.is_file() else {}


def _read_more(path: Path) -> Any:
    if path.suffix == ".csv":
        return pd.read_csv(path)
    return json.loads(path.read_text(encoding="utf-8"))


def _rounded(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's and pandas' arrays and numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
