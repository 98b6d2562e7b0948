"""K trials of a bank against a loop around HF's generate, on one GPU, in turn in one run. Started by gpu.sh.

    bash tests/bench/gpu.sh --out FILE.json
    bash tests/bench/gpu.sh --device cpu --tiny --out FILE.json    does it run?

The model has the shape of Qwen2.5-0.5B and random bf16 weights; a step of a trial is 64 completions
(8 prompts of 64 tokens, groups of 8) of 256 tokens each, by force; LoRA rank 8 on every linear
layer, a k3 penalty with beta 0.04. First come checks of the bank on this device. Then every contender
warms up (graphs are captured there) and takes its turn, round after round; figures are medians. The
loop stands for what one writes with transformers and peft alone: generate with sampling, the
reference by switching the adapters off, one AdamW step.

Columns: seconds of one trial-step (K trials advance in one step; their share of it). tokens/s: completion
tokens of all K. ms/position: of all K x 64 rows together, the prompt's reading spread over it. Decode
share: bytes that decoding must read over the measured copy bandwidth, as a share of the time it took.
Scoring share: useful operations of reference and update over the measured matrix-product peak, likewise.
Peak GB: device memory at its highest, other contenders' left out. Needs neither Optuna nor MLflow, and
refuses to import them.
"""

# ruff: noqa: E402 - what stands before the imports must come before them

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
for unwanted in ("optuna", "mlflow"):
    sys.modules[unwanted] = None  # type: ignore[assignment]  # an import of it fails
sys.path.insert(0, str(ROOT))
# Some packages install a top-level "tests", which would hide this one.
_tests = types.ModuleType("tests")
_tests.__path__ = [str(ROOT / "tests")]
sys.modules["tests"] = _tests
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

import torch
from transformers.utils import logging as transformers_logging

from tests.bench.flags import count, counts
from tests.bench.gpu_checks import check
from tests.bench.gpu_contenders import BankContender, Contender, HFLoop
from tests.bench.gpu_limits import measure_limits
from tests.bench.gpu_model import GROUP, HALF_B, TINY, Job
from tests.bench.gpu_runner import Runner
from tests.bench.gpu_table import table


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Flags, with the defaults of the device filled in."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a smoke test; figures mean nothing")
    parser.add_argument("--slots", type=counts, help="K; 1,8, tiny: 1,2")
    parser.add_argument("--more", type=counts, help="K measured while time is left; 4,16")
    parser.add_argument("--completions", type=count, help="per trial-step; 64")
    parser.add_argument("--tokens", type=count, help="per completion; 256")
    parser.add_argument("--prompt-tokens", type=count, help="64")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="cuda: bfloat16")
    parser.add_argument("--rounds", type=count, help="3; the loop takes 2 at most")
    parser.add_argument("--hf-micro", type=count, default=16, help="rows of the loop's passes; 16")
    parser.add_argument("--no-hf", action="store_true")
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--checks-only", action="store_true")
    parser.add_argument("--traceback", action="store_true", help="of a contender that fails")
    parser.add_argument(
        "--profile", type=Path, help="text: one step of the last of --slots by operation"
    )
    parser.add_argument("--budget", type=float, default=420.0, help="seconds; 420")
    parser.add_argument("--out", type=Path, help="JSON")
    args = parser.parse_args(argv)
    given = {"slots": [1, 8], "more": [4, 16], "completions": 64, "tokens": 256, "rounds": 3}
    given |= {"prompt_tokens": 64, "dtype": "bfloat16" if args.device == "cuda" else "float32"}
    if args.tiny:
        small = {"slots": [1, 2], "more": [], "completions": 16, "tokens": 6, "rounds": 1}
        given |= {**small, "prompt_tokens": 5}
    for name, value in given.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.completions % GROUP:
        raise SystemExit(f"--completions must be a multiple of {GROUP}, the group size")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no CUDA device is there; --device cpu --tiny shows whether it runs")
    return args


def machine(job: Job) -> dict[str, Any]:
    """What ran it."""
    names = ("torch", "transformers", "accelerate", "peft", "numpy", "pydantic")
    versions = {name: importlib.metadata.version(name) for name in names}
    if job.device == "cpu":
        device = f"CPU, {torch.get_num_threads()} threads"
    else:
        properties = torch.cuda.get_device_properties(0)
        device = f"{properties.name}, {properties.total_memory / 1e9:.0f} GB"
        versions["cuda"] = str(torch.version.cuda)
    return {"device": device, "versions": {"python": platform.python_version(), **versions}}


def measure(args: argparse.Namespace, job: Job, runner: Runner) -> None:
    """Checks, limits, the contenders that were asked for, then more while time is left."""
    if not args.no_checks:
        verdicts = runner.attempt("checks", lambda: check(job)) or []
        runner.facts["checks"] = [asdict(verdict) for verdict in verdicts]
        print(*(verdict.line for verdict in verdicts), sep="\n", flush=True)
        _free(job)
    if args.checks_only:
        return
    runner.limits = limits = measure_limits(job)
    print(
        f"{job.dtype} matrix product ({limits.side} cubed) {limits.flops_per_s / 1e12:.4g} TFLOP/s, "
        f"copy {limits.bytes_per_s / 1e9:.4g} GB/s (read + written)",
        flush=True,
    )
    makers: dict[str, Callable[[], Contender]] = {
        f"kltune K={k}": lambda k=k: BankContender(job, k) for k in args.slots
    }
    if not args.no_hf:
        makers["HF generate loop"] = lambda: HFLoop(job, args.hf_micro)
    built = [runner.build(name, make) for name, make in makers.items()]
    ready = [contender for contender in built if contender is not None]
    del built
    counts = {c.name: min(args.rounds, 2) if "HF" in c.name else args.rounds for c in ready}
    runner.rounds(ready, counts)
    if args.profile is not None:
        banks = [contender for contender in ready if "HF" not in contender.name]
        runner.attempt("profile", lambda: profile(banks[-1], args.profile))
        del banks
    ready.clear()
    _free(job)
    for k in args.more:
        # As long as K trials one after another would take, twice to warm up and once to count.
        alone = runner.rows().get("kltune K=1", {}).get("step_s", 0.0)
        if k in args.slots or not runner.clock.allows(3 * k * alone):
            continue
        extra = runner.build(f"kltune K={k}", lambda k=k: BankContender(job, k))
        if extra is not None:
            runner.rounds([extra], {extra.name: args.rounds})
        del extra
        _free(job)


def profile(contender: Contender, path: Path) -> None:
    """Write where one step's time goes, by operation and kernel."""
    from torch.profiler import ProfilerActivity

    kinds = [ProfilerActivity.CPU]
    is_cuda = torch.cuda.is_available()
    if is_cuda:
        kinds.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as seen:
        contender.step()
    order = "self_device_time_total" if is_cuda else "self_cpu_time_total"
    found = seen.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=90)
    path.write_text(f"{contender.name}, one step\n{found}\n", encoding="utf-8")


def _free(job: Job) -> None:
    gc.collect()
    if job.device != "cpu":
        torch.cuda.empty_cache()


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 1 if a check or a contender failed."""
    args = parse(argv)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    shape = TINY if args.tiny else HALF_B
    work = (args.completions, args.tokens, args.prompt_tokens)
    job = Job(shape, args.device, args.dtype, *work)
    runner = Runner(args, job)
    runner.facts |= machine(job)
    print(runner.facts["device"], json.dumps(runner.facts["versions"]))
    print(
        f"{shape.name}, {job.dtype}: {job.completions} completions x {job.tokens} tokens per trial-step, "
        f"prompts of {job.prompt_tokens}",
        flush=True,
    )
    measure(args, job, runner)
    found = [name for name in ("optuna", "mlflow") if sys.modules.get(name) is not None]
    runner.facts["imported"] = found
    runner.write()
    print("\n" + table(runner.rows()))
    print(f"{runner.clock.spent:.0f} s; neither Optuna nor MLflow was imported: {not found}")
    failed = [c["name"] for c in runner.facts.get("checks", []) if not c["holds"]]
    return 1 if failed or found or runner.facts["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
