"""Eight fresh seeds of the built-in task at five betas: mean curves, peaks and paired t tests, as JSON lines.

    python tests/bench/kitchen_seeds.py OUT.jsonl [--seeds 10-17] [--betas 0,0.05,0.15,0.5,10]

Uses the model, trainer and evaluation of sweeps/kitchen.yaml with the k2-loss penalty; about
25 CPU seconds per trial. The seeds are not among those that the task was tuned on (0 to 2).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy import stats

from kltune.launch.assemble import build_bank, find_inputs, load_ground, reference_scale
from kltune.spec.load import load_spec
from kltune.spec.trial import TrialSpec

ROOT = Path(__file__).parents[2]
Rows = list[dict[str, object]]


def run(out: Path, seeds: list[int], betas: list[float]) -> None:
    """Train every beta of a seed side by side and append one row per trial."""
    loaded = load_spec(ROOT / "sweeps" / "kitchen.yaml", (f"budget.slots={len(betas)}",))
    spec = loaded.spec
    ground = load_ground(spec, find_inputs(loaded), None)
    bank = build_bank(ground, spec, reference_scale(ground, spec, None))
    for seed in seeds:
        curves: list[list[dict[str, float]]] = [[] for _ in betas]
        for slot, beta in enumerate(betas):
            fields = {"beta": beta, "penalty": "k2-loss" if beta else None, "seed": seed}
            rate = {"learning_rate": spec.trainer.learning_rate}
            bank.admit(slot, slot, TrialSpec.model_validate({**fields, **rate}), None)
        for step in range(spec.trainer.steps + 1):
            if step % spec.evaluate.every == 0:
                for m in bank.evaluate(range(len(betas))):
                    point = {"step": m.step, "gold": m.gold, "proxy": m.proxy}
                    curves[m.slot].append({**point, "kl_seq": m.kl_seq, "kl_token": m.kl_token})
            if step < spec.trainer.steps:
                bank.train_step()
        with out.open("a", encoding="utf-8") as file:
            for slot, beta in enumerate(betas):
                file.write(json.dumps({"seed": seed, "beta": beta, "curve": curves[slot]}) + "\n")
                bank.evict(slot)


def summarise(rows: Rows) -> None:
    """Print means, peaks and paired t tests of the gold at the end."""
    betas = sorted({row["beta"] for row in rows})
    seeds = sorted({row["seed"] for row in rows})
    by = {(row["seed"], row["beta"]): row["curve"] for row in rows}

    def column(beta: object, name: str) -> np.ndarray:
        return np.array([[p[name] for p in by[seed, beta]] for seed in seeds])

    for beta in betas:
        gold, proxy, kl = (column(beta, name) for name in ("gold", "proxy", "kl_seq"))
        peak = gold.argmax(axis=1)
        rows_of = range(len(seeds))
        print(
            f"beta {beta}: gold {gold[:, 0].mean():.2f} -> peak {gold.max(axis=1).mean():.2f} "
            f"(step {np.median(peak) * 10:.0f}, kl_seq {np.median(kl[rows_of, peak]):.1f}) -> end "
            f"{gold[:, -1].mean():.2f} (sd {gold[:, -1].std(ddof=1):.2f}, kl_seq "
            f"{np.median(kl[:, -1]):.1f}); proxy {proxy[:, 0].mean():.2f} -> {proxy[:, -1].mean():.2f}"
        )
    for beta in betas:
        for other in (min(betas), max(betas)):
            if beta in (min(betas), max(betas)):
                continue
            gap = column(beta, "gold")[:, -1] - column(other, "gold")[:, -1]
            test = stats.ttest_1samp(gap, 0.0)
            print(
                f"end of beta {beta} minus end of beta {other}: {gap.mean():.2f}, paired "
                f"t({len(gap) - 1}) = {test.statistic:.2f}, p = {test.pvalue:.4f}"
            )


def main() -> None:
    """Parse, run, summarise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="10-17")
    parser.add_argument("--betas", default="0,0.05,0.15,0.5,10")
    parser.add_argument("--only-summary", action="store_true")
    args = parser.parse_args()
    first, last = (int(part) for part in args.seeds.split("-"))
    if not args.only_summary:
        run(args.out, list(range(first, last + 1)), [float(b) for b in args.betas.split(",")])
    summarise([json.loads(line) for line in args.out.read_text(encoding="utf-8").splitlines()])


if __name__ == "__main__":
    main()
