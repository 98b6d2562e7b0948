"""The benchmark counts, divides and compares as its tables say, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from kltune.trainer.flops import ModelSize, Passes, StepTokens, step_flops
from tests.bench.against_trl import contenders_of, growth_of, parse
from tests.bench.contenders import Contender, Step, spread
from tests.bench.job import Job
from tests.bench.models import make_model, make_prompts, shape_of
from tests.bench.results import (
    HEADINGS,
    Facts,
    Row,
    growth_table,
    make_row,
    phase_shares,
    slope,
    table,
)
from tests.bench.rounds import compare, quiet_step, refuse_unequal
from tests.bench.totals import TrialTime, total, total_text
from tests.bench.work import Flops, Shape, Work, count_flops

COMMAND = Path(__file__).parent / "bench" / "against_trl.py"
KLTUNE = Job("kltune", threads=2)
PHASES = {"rollout": 1.0, "score": 0.5, "logprobs": 1.0, "update": 2.0, "step": 5.0}


def flops(prompt_tokens: float = 5, *, once: bool = False) -> Flops:
    return count_flops(Shape(body=100, head=10), Work(16, 4), prompt_tokens, prompts_once=once)


def facts(workers: int = 1, slots: int = 2) -> Facts:
    once, each = Flops(4e9, 4e9, 8e9), Flops(8e9, 8e9, 16e9)
    return Facts("x", "kltune", slots, workers, 1, "fp32", 100.0, each, once, peak_gflops=64)


def row(name: str, trainer: str, seconds: float, peak_mb: float = 100.0) -> Row:
    told = replace(facts(slots=1), name=name, trainer=trainer, peak_mb=peak_mb)
    return make_row(told, [Step(seconds, PHASES, 64, 4.0)])


def test_flops_are_two_per_weight_and_token_and_four_in_the_update() -> None:
    # Read: 16 prompts of 5 tokens, and 3 of every 4 completion tokens. Head: all 64 of them.
    forward = 2 * (100 * (16 * 5 + 16 * 3) + 10 * 64)
    assert flops() == Flops(rollout=forward, reference=forward, update=2 * forward)
    assert flops().total == 4 * forward
    assert flops().scoring == 3 * forward


def test_a_groups_prompt_can_be_counted_once_and_never_enters_the_head() -> None:
    assert flops().rollout - flops(once=True).rollout == 2 * 100 * (16 - 2) * 5
    assert flops(prompt_tokens=6).rollout - flops().rollout == 2 * 100 * 16


def test_the_count_is_the_packages_own_without_attention_and_adapters() -> None:
    tokens = StepTokens.of([5, 5], [4] * 16, group_size=8)
    size = ModelSize(body=100, head=10, layers=2, width=8)
    own = step_flops(size, 0, replace(tokens, pairs=0), Passes())
    assert flops(once=True) == Flops(own.rollout, own.reference, own.update)


def test_the_shape_is_that_of_the_model_which_is_loaded(tmp_path: Path) -> None:
    for name in ("tiny", "kitchen"):
        folder = make_model(name, tmp_path / name)
        model: Any = AutoModelForCausalLM.from_pretrained(folder)
        layers = [m for m in model.base_model.modules() if isinstance(m, nn.Linear)]
        head = model.get_output_embeddings().weight.numel()
        assert shape_of(folder) == Shape(sum(m.weight.numel() for m in layers), head)


def test_the_shape_knows_shared_key_value_heads(tmp_path: Path) -> None:
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        vocab_size=30,
    )
    config.save_pretrained(tmp_path)
    model: Any = LlamaForCausalLM(config)
    layers = [m for m in model.base_model.modules() if isinstance(m, nn.Linear)]
    assert shape_of(tmp_path) == Shape(sum(m.weight.numel() for m in layers), 30 * 32)


def test_prompts_are_the_same_every_time() -> None:
    assert make_prompts("m1") == make_prompts("m1")
    assert {len(text.split()) for text in make_prompts("m1")} == {16}
    assert len(set(make_prompts("smollm2"))) > 200


def test_slots_and_threads_are_divided_among_workers_and_no_two_trials_share_a_seed() -> None:
    made = spread(KLTUNE, slots=8, workers=2, threads=2)
    assert [(job.slots, job.threads, job.first_trial) for job in made.jobs] == [
        (4, 1, 0),
        (4, 1, 4),
    ]
    assert made.slots == 8
    assert spread(KLTUNE, slots=4, workers=4, threads=2).jobs[0].threads == 1


def test_a_job_survives_the_command_line() -> None:
    job = replace(KLTUNE, work=Work(64, 32), precision="bf16", slots=3)
    assert Job.from_json(job.to_json()) == job


def test_workers_that_do_not_divide_the_slots_are_left_out() -> None:
    args = parse(["--out", "x", "--no-trl", "--slots", "1,2,3", "--workers", "1,2"])
    names = [contender.name for contender in contenders_of(args, KLTUNE)]
    assert names == ["kltune K=1 W=1", "kltune K=2 W=1", "kltune K=2 W=2", "kltune K=3 W=1"]


def test_growth_varies_one_quantity_at_a_time_and_measures_a_shared_point_once() -> None:
    args = parse(["--out", "x", "--grow"])
    base = replace(KLTUNE, work=Work(args.completions, args.tokens))
    points = growth_of(args, base)
    assert {name: [x for x, _ in seen] for name, seen in points.items()} == {
        "K": [1, 2, 4, 8],
        "completions": [16, 32, 64, 128],
        "tokens": [16, 32, 64, 128],
    }
    names = [c.name for seen in points.values() for _, c in seen]
    assert (len(names), len(set(names))) == (12, 10)
    assert points["completions"][2][1] is points["tokens"][1][1] is points["K"][0][1]


def test_under_bf16_trl_may_choose_between_bf16_and_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    args = parse(["--out", "x", "--precision", "bf16", "--dtype", "bfloat16", "--slots", "1"])
    jobs = [c.jobs[0] for c in contenders_of(args, replace(KLTUNE, precision="bf16"))]
    seen = [(job.trainer, job.precision, job.dtype, job.checkpointing) for job in jobs[:2]]
    assert seen == [("trl", "fp32", "float32", False), ("trl", "bf16", "bfloat16", False)]


def test_a_step_of_k_slots_counts_as_k_trial_steps() -> None:
    steps = [Step(seconds, PHASES, 64, 4.0) for seconds in (1.0, 2.0, 8.0)]
    found = make_row(facts(), steps)
    assert (found.trial_step_s, found.trial_step_min_s, found.trial_step_max_s) == (1.0, 0.5, 4.0)
    assert (found.trial_steps_per_s, found.tokens_per_s) == (1.0, 32.0)
    assert (found.gflops, found.peak_share, found.peak_share_prompts_once) == (32, 0.5, 0.25)


def test_forward_and_backward_are_held_against_the_limit_over_their_own_seconds() -> None:
    # Two slots in one process: 1 + 2 s for log-probs and update, so 1.5 s for a slot's 24 GFLOP.
    alone = make_row(facts(), [Step(5.0, PHASES, 64, 4.0)])
    assert alone.scoring_share == pytest.approx(24 / 1.5 / 64)
    # One slot each in two processes at once: their phases add up to twice the wall clock.
    both = {name: 2 * value for name, value in PHASES.items()}
    beside = make_row(facts(workers=2), [Step(5.0, both, 64, 4.0)])
    assert beside.scoring_share == pytest.approx(24 / 1.5 / 64)


def test_phases_are_shares_of_the_step_and_an_unmeasured_reference_is_none() -> None:
    found = phase_shares(PHASES)
    assert found == pytest.approx({"rollout": 0.2, "reference": None, "update": 0.6, "other": 0.2})
    split = phase_shares({**PHASES, "reference": 0.5})
    assert (split["reference"], split["other"]) == pytest.approx((0.1, 0.1))


def test_the_baseline_is_the_faster_of_trls_settings() -> None:
    rows = compare(
        [row("slow", "trl", 4.0), row("fast", "trl", 2.0, 200.0), row("ours", "kltune", 1.0)]
    )
    assert [r.times_baseline for r in rows] == [0.5, 1.0, 2.0]
    assert [r.memory_of_baseline for r in rows] == [0.5, 1.0, 0.5]
    assert compare([row("ours", "kltune", 1.0)])[0].times_baseline is None


def test_a_disturbed_step_is_repeated_and_the_quietest_counts() -> None:
    class Waiting:
        def __init__(self, *foreign: float) -> None:
            self.left = [Step(1.0, PHASES, 32, 4.0, each) for each in foreign]

        def step(self) -> Step:
            return self.left.pop(0)

    assert quiet_step(Waiting(0.9, 0.3, 0.5, 0.0), retries=2).foreign == 0.3
    assert quiet_step(Waiting(0.9, 0.1, 0.0), retries=2).foreign == 0.1
    assert quiet_step(Waiting(0.9, 0.1), retries=0).foreign == 0.9


def test_other_prompts_or_lengths_are_refused() -> None:
    tiny = Contender("x", (KLTUNE,))
    good, short = Step(1.0, PHASES, 32, 4.0), Step(1.0, PHASES, 30, 3.75)
    refuse_unequal([tiny, tiny], [16.0, 16.0], [[good], [good]])
    with pytest.raises(RuntimeError, match=r"completions of \[3.75, 4.0\] tokens"):
        refuse_unequal([tiny], [16.0], [[good, short]])
    with pytest.raises(RuntimeError, match=r"prompts of 17.0 tokens"):
        refuse_unequal([tiny, tiny], [16.0, 17.0], [[good], [good]])


def test_linear_growth_has_slope_one() -> None:
    assert slope([16, 32, 64], [1.0, 2.0, 4.0]) == pytest.approx(1.0)
    assert slope([1, 2, 4], [3.0, 3.0, 3.0]) == pytest.approx(0.0)
    assert "| tokens | 16: 1, 32: 4 | 2.00 |" in growth_table({"tokens": [(16, 1.0), (32, 4.0)]})


def test_the_table_has_a_cell_for_every_heading() -> None:
    lines = table(compare([row("TRL", "trl", 2.0), row("ours", "kltune", 1.0)])).splitlines()
    assert {line.count(" | ") for line in (lines[0], *lines[2:])} == {len(HEADINGS) - 1}
    assert "| 2.00 |" in lines[3]


def test_a_naive_sweep_is_scaled_with_its_start_up_counted_once() -> None:
    times = [TrialTime(whole, 1.0, whole - 3, 2.0, 12.0) for whole in (10.0, 20.0)]
    found = total(times, start_up_s=5.0, trials=24)
    assert (found["total_s"], found["total_min_s"], found["total_max_s"]) == (365, 245, 485)
    assert "2 trials measured: 15.0 s each" in total_text(found)


def smoke(tmp_path: Path, *flags: str) -> dict[str, list[dict[str, float]]]:
    out, text = tmp_path / "out.json", tmp_path / "out.md"
    command = [sys.executable, str(COMMAND), "--tiny", "--out", str(out), "--md", str(text)]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert text.read_text(encoding="utf-8") in done.stdout
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_it_runs_with_workers(tmp_path: Path) -> None:
    (found,) = smoke(tmp_path, "--no-trl", "--slots", "2", "--workers", "2")["rows"]
    assert (found["slots"], found["workers"], found["mean_length"]) == (2, 2, 4)
    assert found["trial_step_s"] > 0
    assert found["peak_mb"] > 100


@pytest.mark.bench
def test_it_runs_against_trl(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    theirs, ours = smoke(tmp_path, "--slots", "1", "--workers", "1")["rows"]
    assert theirs["mean_length"] == ours["mean_length"] == 4
    assert theirs["times_baseline"] == 1


@pytest.mark.parametrize("flag", ["--slots", "--workers", "--completions", "--tokens"])
@pytest.mark.parametrize("value", ["0", "-8", "x"])
def test_a_count_that_is_none_is_refused_by_its_flag(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(["--out", "x.json", f"{flag}={value}"])
    assert f"argument {flag}: must be a whole number of at least 1" in capsys.readouterr().err


def test_workers_that_divide_no_number_of_trials_are_refused() -> None:
    args = parse(["--out", "x.json", "--no-trl", "--slots", "2", "--workers", "3"])
    with pytest.raises(SystemExit, match="no W divides a K"):
        contenders_of(args, Job("kltune", 2))
