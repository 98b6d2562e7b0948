"""What the written file says of made-up logs of three trainers, and a real TRL run that it ends."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tripwire_case as case

from kltune.spec.guards import KLGuardSpec

HEALTHY: Mapping[str, Mapping[str, Any]] = {
    # As TRL 1.16 hands them to on_log, verl 0.9 to Tracking.log and OpenRLHF 0.11 to save_logs_and_checkpoints.
    "trl": {"kl": 0.03, "loss": 0.002, "grad_norm": 1.1, "reward": 0.4, "rewards/f/mean": None},
    "verl": {
        "actor/kl_loss": 0.03,
        "actor/pg_loss": -0.01,
        "actor/grad_norm": 0.6,
        "actor/ppo_kl": 0.0004,
        "critic/score/mean": 0.4,
        "training/global_step": 3,
    },
    "openrlhf": {
        "kl": 0.03,
        "policy_loss": -0.01,
        "actor_grad_norm": 0.6,
        "ppo_kl": 0.0004,
        "reward": 0.4,
        "generated_samples": [["a prompt", "an answer"]],
    },
}
KL = {"trl": "kl", "verl": "actor/kl_loss", "openrlhf": "kl"}
FRAMEWORKS = pytest.mark.parametrize("framework", HEALTHY)


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> ModuleType:
    return case.load(case.text(request.param), tmp_path)


MADE = pytest.mark.parametrize(
    ("made", "framework"), [(name, name) for name in HEALTHY], indirect=["made"]
)


def feed(made: ModuleType, rows: list[Mapping[str, Any]], **settings: Any) -> list[str]:
    watch = made.Tripwire(out=io.StringIO(), **settings)
    return [watch.check(row, step) for step, row in enumerate(rows, start=1)]


@MADE
def test_a_healthy_run_is_left_alone(made: ModuleType, framework: str) -> None:
    assert set(feed(made, [HEALTHY[framework]] * 60)) == {"ok"}


@MADE
def test_kl_above_the_limit_stops_after_the_studys_patience(
    made: ModuleType, framework: str
) -> None:
    above = {**HEALTHY[framework], KL[framework]: 0.21}
    assert feed(made, [above] * 3)[1:] == ["ok", "stop"]


@MADE
def test_one_spike_is_forgiven(made: ModuleType, framework: str) -> None:
    above = {**HEALTHY[framework], KL[framework]: 5.0}
    rows = [above, above, HEALTHY[framework]] * 5
    assert set(feed(made, rows)) == {"ok"}


@MADE
def test_beyond_the_gold_peak_it_warns_and_stops_where_it_is_told_to(
    made: ModuleType, framework: str
) -> None:
    beyond = {**HEALTHY[framework], KL[framework]: 0.06}
    assert feed(made, [beyond] * 3) == ["ok", "ok", "warn"]
    assert feed(made, [beyond] * 3, at_peak="stop") == ["ok", "ok", "stop"]


@MADE
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_kl_that_is_not_finite_stops_at_once(
    made: ModuleType, framework: str, value: float
) -> None:
    assert feed(made, [{**HEALTHY[framework], KL[framework]: value}]) == ["stop"]


@MADE
def test_a_gradient_norm_that_overflows_once_is_the_trainers_business(
    made: ModuleType, framework: str
) -> None:
    name = made.GRADIENT_NAMES[0]
    broken = {**HEALTHY[framework], name: math.inf}
    assert feed(made, [broken, HEALTHY[framework]] * 3) == ["ok"] * 6
    assert feed(made, [broken] * 3) == ["ok", "ok", "stop"]


@MADE
def test_update_and_sampler_kls_never_trigger(made: ModuleType, framework: str) -> None:
    names = "ppo_kl actor/ppo_kl train/ppo_kl approx_kl policy/approxkl_avg ppo/policy/policykl"
    more = "vllm_kl rollout_corr/kl rollout_corr/k3_kl eval_kl"
    others = dict.fromkeys(f"{names} {more}".split(), 1e6)
    assert set(feed(made, [{**HEALTHY[framework], **others}] * 40)) == {"ok"}


@MADE
def test_a_kl_that_stays_near_0_is_told_as_a_stall(made: ModuleType, framework: str) -> None:
    still = {**HEALTHY[framework], KL[framework]: 0.001}
    verdicts = feed(made, [still] * 30)
    assert set(verdicts[:29]) == {"ok"}
    assert verdicts[29] == "warn"


@MADE
def test_a_tripwire_that_sees_no_kl_says_so(made: ModuleType, framework: str) -> None:
    row = {k: v for k, v in HEALTHY[framework].items() if k != KL[framework]}
    assert feed(made, [row] * 5) == ["ok"] * 4 + ["warn"]


@pytest.mark.parametrize("made", ["openrlhf", "verl"], indirect=True)
def test_a_kl_of_exactly_0_is_no_kl_where_the_trainer_writes_zeros_without_a_reference(
    made: ModuleType,
) -> None:
    row = {made.KL_NAMES[0]: 0.0, made.LOSS_NAMES[0]: 0.1}
    watch = made.Tripwire(out=(out := io.StringIO()))
    assert [watch.check(row, step) for step in range(1, 61)][-1] == "warn"
    assert "no KL in 5 logs in a row" in out.getvalue()
    assert "stalled" not in out.getvalue()


@pytest.mark.parametrize("made", ["trl"], indirect=True)
def test_a_kl_that_trl_logs_as_none_was_not_finite(made: ModuleType) -> None:
    assert feed(made, [{**HEALTHY["trl"], "kl": None}]) == ["stop"]


@pytest.mark.parametrize("made", ["trl"], indirect=True)
def test_evaluations_and_the_summary_are_no_steps(made: ModuleType) -> None:
    rows = [{"eval_loss": math.nan, "eval_kl": 9.0}, {"train_runtime": 3.0, "train_loss": 0.1}] * 9
    assert set(feed(made, rows)) == {"ok"}


@pytest.mark.parametrize("made", ["trl"], indirect=True)
def test_a_leading_train_is_taken_off(made: ModuleType) -> None:
    row = {f"train/{name}": value for name, value in HEALTHY["trl"].items()}
    assert feed(made, [{**row, "train/kl": 0.3}] * 3)[-1] == "stop"


@pytest.mark.parametrize("made", ["trl"], indirect=True)
def test_warn_turns_every_stop_into_a_warning(made: ModuleType) -> None:
    rows = [{**HEALTHY["trl"], "kl": value} for value in (9.0, 9.0, 9.0, math.nan)]
    assert feed(made, rows, action="warn") == ["ok", "ok", "warn", "warn"]
    with pytest.raises(ValueError, match="action: must be warn or stop"):
        made.Tripwire(action="none")


@pytest.mark.parametrize("made", ["trl"], indirect=True)
def test_a_reason_is_printed_once_with_its_numbers(made: ModuleType) -> None:
    watch = made.Tripwire(out=(out := io.StringIO()))
    for step in range(1, 7):
        watch.check({**HEALTHY["trl"], "kl": 0.3}, step)
    assert out.getvalue().splitlines() == [
        "tripwire: stop at step 3: KL 0.3 > 0.2 nats/token (hard limit), 3 in a row",
        "tripwire: warn at step 3: KL 0.3 > 0.05 nats/token (where gold was best in the study), 3 in a row",
    ]


@pytest.mark.parametrize("made", ["verl"], indirect=True)
def test_a_guarded_logger_of_verl_logs_first_and_then_stops(made: ModuleType) -> None:
    class Tracking:
        def __init__(self) -> None:
            self.logged: list[int] = []

        def log(self, data: Mapping[str, Any], step: int, backend: str | None = None) -> None:
            self.logged.append(step)

    Tracking.log = made.guarded(Tracking.log, made.Tripwire(patience=2, out=io.StringIO()))
    tracking = Tracking()
    row = {**HEALTHY["verl"], "actor/kl_loss": 0.3}
    tracking.log(data=row, step=1)
    tracking.log(data={"val-core/math/acc/mean@8": 0.5}, step=1)
    with pytest.raises(made.TripwireStop, match=r"step 2: KL 0\.3 > 0\.2 nats/token"):
        tracking.log(data=row, step=2)
    assert tracking.logged == [1, 1, 2]


@pytest.mark.parametrize("made", ["openrlhf"], indirect=True)
def test_a_guarded_method_of_openrlhf_takes_the_metrics_and_not_the_client_states(
    made: ModuleType,
) -> None:
    class BasePPOTrainer:
        def save_logs_and_checkpoints(
            self, global_step: int, logs_dict: object = None, client_states: object = None
        ) -> None: ...

    method = BasePPOTrainer.save_logs_and_checkpoints
    BasePPOTrainer.save_logs_and_checkpoints = made.guarded(
        method, made.Tripwire(patience=1, out=io.StringIO())
    )
    trainer, states = BasePPOTrainer(), {"episode": 0, "kl": 99.0}
    trainer.save_logs_and_checkpoints(4, dict(HEALTHY["openrlhf"]), states)
    with pytest.raises(made.TripwireStop, match="step 5: "):
        trainer.save_logs_and_checkpoints(5, {**HEALTHY["openrlhf"], "kl": 0.3}, states)


@pytest.mark.parametrize("made", ["trl"], indirect=True)
@pytest.mark.parametrize(
    ("strategy", "kl", "is_saved"),
    [("steps", 0.3, True), ("no", 0.3, False), ("steps", None, False)],
)
def test_the_callback_saves_what_is_worth_saving_and_ends_the_training(
    made: ModuleType, strategy: str, kl: float | None, is_saved: bool
) -> None:
    from transformers import TrainerCallback, TrainerControl, TrainerState

    args = SimpleNamespace(save_strategy=strategy)
    callback = made.TripwireCallback(made.Tripwire(out=io.StringIO()))
    assert isinstance(callback, TrainerCallback)
    control, state = TrainerControl(), TrainerState(global_step=5)
    for verdict in (False, False, True):
        callback.on_log(args, state, control, logs={**HEALTHY["trl"], "kl": 0.3})
        assert control.should_training_stop is verdict
    again = TrainerControl()
    callback.on_log(args, state, again, logs={**HEALTHY["trl"], "kl": kl})
    assert (again.should_training_stop, again.should_save) == (True, is_saved)


@pytest.fixture
def stopped_by(tmp_path: Path) -> Iterator[ModuleType]:
    """A tripwire whose hard limit is low enough for a run of a few steps."""
    winner = case.winner(kl_guard=KLGuardSpec(limit=0.05, patience=2), stop=None)
    return case.load(case.text("trl", winner), tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_ends_a_real_trl_run_at_its_limit(
    stopped_by: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from kltune.trainer.sources import resolve_model

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    base = resolve_model("builtin:kitchen", None, Path).pretrained
    config = GRPOConfig(
        output_dir=str(tmp_path / "run"),
        beta=0.001,
        learning_rate=1e-2,
        max_steps=40,
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=8,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    watch = stopped_by.Tripwire(out=(out := io.StringIO()))
    trainer: Any = GRPOTrainer(
        model=base,
        reward_funcs=lambda completion_ids, **_: [float(len(set(c))) for c in completion_ids],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["how do i cook rice ?"] * 16}),
        processing_class=AutoTokenizer.from_pretrained(base, padding_side="left"),
        callbacks=[stopped_by.TripwireCallback(watch)],
    )
    try:
        trainer.train()
    finally:
        torch.set_num_threads(threads)
    steps = trainer.state.global_step
    kls = [row["kl"] for row in trainer.state.log_history if "kl" in row]
    assert 2 <= steps < 40
    assert len(kls) == steps
    assert min(kls[-2:]) > 0.05
    assert f"tripwire: stop at step {steps}: KL" in out.getvalue()
    assert not any((tmp_path / "run").glob("checkpoint-*"))  # save_strategy no stays no
