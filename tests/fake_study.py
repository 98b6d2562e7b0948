"""Settings in, a study folder that looks like a real one out: gold rises, peaks and falls with KL."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kltune.metrics.jsonl import write_json
from kltune.metrics.record import EvalMetrics, EvalSample, OtherGold, StepMetrics
from kltune.spec.load import resolved
from kltune.spec.penalty import Penalty
from kltune.spec.study import StudySpec
from kltune.spec.trial import ControllerKind, KLUnit, TrialSpec
from kltune.trainer.controller import ControlFacts, next_control, start_control
from kltune.trial.folder import TrialFolder
from kltune.trial.objective import judge_trial, point_of
from kltune.trial.outcome import StopReason, TrialOutcome, Verdict

SIGMA_R = 0.62
TOKENS = 14.0
NUM_PROMPTS = 64
SPEC: dict[str, Any] = {
    "name": "kitchen",
    "task": "kitchen",
    "model": {"base": "builtin:kitchen"},
    "trainer": {
        "steps": 80,
        "prompts": 8,
        "group_size": 8,
        "max_new_tokens": 32,
        "learning_rate": 1e-3,
    },
    "search": {
        "beta": {"log": [1e-3, 1], "zero": True},
        "penalty": {"choice": ["k1-reward", "k2-loss", "k3-loss"]},
        "controller": {"choice": ["fixed", "proportional"]},
        "target_kl": {"log": [0.005, 0.2], "when": {"controller": "proportional"}},
        "horizon": {"log": [64, 6400], "when": {"controller": "proportional"}},
    },
    "baselines": ["trl-grpo-0.18", "deepseekmath", "verl-ppo"],
    "objective": {"metric": "gold_peak", "kl_limit": 0.5},
    "budget": {"trials": 24},
}
ANSWERS = (
    "boil the eggs for eight minutes and cool them in cold water",
    "simmer the rice for twelve minutes with the lid on",
    "about ten minutes , maybe , it depends on the pot",
    "keep the lid to 32 minutes keep the lid to 32 minutes keep the lid",
)


@dataclass(frozen=True)
class FakeTrial:
    """One trial to write; what is left out looks like a trial that ran its course."""

    setting: TrialSpec
    origin: str = "sobol"
    steps: int = 80
    reason: StopReason | None = StopReason.DONE
    detail: str = "80 of 80 steps"
    value: float | None = None
    """Told value; none: made from the curve."""
    gold: Sequence[float] | None = None
    """Gold of each evaluation, instead of the simulated one."""
    texts: Sequence[str] = field(default=ANSWERS)
    noise: float = 0.35
    """Standard deviation of gold over prompts."""
    others: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """Further golds of each evaluation, by name."""
    warnings: Sequence[tuple[str, int, str]] = ()
    """Guard, step and detail."""


def trial(beta: float, **changes: Any) -> FakeTrial:
    """A FakeTrial by beta; setting fields and FakeTrial fields may be mixed."""
    own = {k: changes.pop(k) for k in list(changes) if k in FakeTrial.__dataclass_fields__}
    penalty = changes.pop("penalty", Penalty.K2_LOSS if beta else None)
    rate = changes.pop("learning_rate", 1e-3)
    return FakeTrial(TrialSpec(beta=beta, penalty=penalty, learning_rate=rate, **changes), **own)


def typical_trials() -> list[FakeTrial]:
    """24 trials with every kind of ending, as `sweeps/kitchen.yaml` might leave them."""
    rng = random.Random(3)
    trials = [
        trial(0.0248, penalty=Penalty.K3_LOSS, origin="baseline:trl-grpo-0.18"),
        trial(0.0248, penalty=Penalty.K3_LOSS, origin="baseline:deepseekmath"),
        trial(0.001, penalty=Penalty.K1_REWARD, origin="baseline:verl-ppo"),
        trial(0.0, origin="zero"),
    ]
    for n in range(4, 24):
        adaptive = {}
        if n % 3 == 0:
            adaptive = {
                "controller": ControllerKind.PROPORTIONAL,
                "target_kl": round(10 ** rng.uniform(-2, -0.8), 4),
                "horizon": round(10 ** rng.uniform(1.9, 3.4), 1),
            }
        ending: dict[str, Any] = {}
        if n in (9, 14):
            ending = {
                "reason": StopReason.PRUNED,
                "steps": 40,
                "detail": "gold 0.214 below the median 0.402 of 7 peers at step 40, KL 0.31 not below",
            }
        if n == 11:
            ending = {
                "reason": StopReason.ERROR,
                "steps": 17,
                "detail": "RuntimeError: proxy returned 63 scores for 64 samples",
            }
        trials.append(
            trial(
                float(f"{10 ** rng.uniform(-3, 0):.3g}"),
                penalty=list(Penalty)[n % 3],
                origin="sobol" if n < 12 else "tpe",
                **adaptive,
                **ending,
            )
        )
    return trials


def write_study(folder: Path, trials: Sequence[FakeTrial], **spec: Any) -> Path:
    """Write the files that the rest of a study would, then each trial."""
    study = StudySpec.model_validate({**SPEC, **spec})
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "resolved.json", resolved(study))
    (folder / "spec.yaml").write_text("# the spec, verbatim\nname: kitchen\n", encoding="utf-8")
    env = {
        "created_at": "2026-01-05T10:00:00+00:00",
        "kltune": "0.1.0",
        "python": "3.11.9",
        "packages": {"torch": "2.13.0", "transformers": "5.24.0", "optuna": "5.0.1"},
        "device": "cpu",
        "git_commit": "0123abc",
        "command": ["kltune", "sweep", "sweeps/kitchen.yaml"],
    }
    write_json(folder / "env.json", env)
    reference = {"sigma_r": SIGMA_R, "mean": 0.02, "num_groups": 32, "mean_tokens": TOKENS}
    write_json(folder / "reference.json", reference)
    for number, fake in enumerate(trials):
        write_trial(folder, number, fake, study)
    return folder


def write_trial(study_path: Path, number: int, fake: FakeTrial, study: StudySpec) -> None:
    """Write one trial through the same calls as the study loop."""
    rng = random.Random(number * 7919 + 1)
    folder = TrialFolder(study_path, number, 1)
    folder.write_config(fake.setting, fake.origin, SIGMA_R, study.kl_unit, study.beta_unit)
    folder.append_event("started", 0, slot=0)
    facts = ControlFacts(fake.setting, study.control, study.trainer.steps, study.trainer.rows)
    control = start_control(facts)
    kl_seq, beta, points, every = 0.0, control.beta, [], study.evaluate.every
    over = 0
    outcome_steps, reason, detail = fake.steps, fake.reason, fake.detail
    for step in range(fake.steps + 1):
        if step > 0:
            speed = 0.09 * (fake.setting.learning_rate / 1e-3)
            kl_seq = max(0.01, kl_seq + speed * rng.uniform(0.8, 1.2) - 0.35 * beta * kl_seq)
            folder.append_step(_step(number, step, kl_seq, beta, fake, rng))
            kl = kl_seq / TOKENS if study.kl_unit is KLUnit.TOKEN else kl_seq
            control = next_control(control, kl, step, facts)
            beta = control.beta
            guard = study.kl_guard
            over = over + 1 if guard is not None and kl > guard.limit else 0
            if guard is not None and over >= guard.patience and reason is StopReason.DONE:
                unit = "nats/token" if study.kl_unit is KLUnit.TOKEN else "nats/sequence"
                reason, outcome_steps = StopReason.KL_LIMIT, step
                detail = f"kl {kl:.3f} > {guard.limit} {unit} for {guard.patience} steps"
        if step % every == 0 or step == outcome_steps:
            measured = _evaluation(number, step, kl_seq, fake, rng, len(points))
            folder.append_eval(measured)
            points.append(measured)
        for guard, at, words in fake.warnings:
            if at == step:
                folder.append_warning(guard, words, max(1, at - 5), at)
        if step == outcome_steps:
            break
    if reason is not None:
        folder.append_outcome(_outcome(number, fake, reason, detail, outcome_steps, points, study))
    _spread_times(folder.path, number)


def _step(
    number: int, step: int, kl_seq: float, beta: float, fake: FakeTrial, rng: random.Random
) -> StepMetrics:
    loss_kl = kl_seq / TOKENS
    values = {
        "train/loss": 0.001 * step,
        "train/loss_kl": loss_kl,
        "ctrl/coefficient": beta / SIGMA_R
        if fake.setting.penalty is not Penalty.K1_REWARD
        else beta,
    }
    if fake.setting.target_kl is not None:
        values["ctrl/target"] = fake.setting.target_kl
    proxy = 1.9 * (1 - math.exp(-kl_seq / 7)) + rng.gauss(0, 0.05)
    tokens = int(64 * TOKENS)
    return StepMetrics(0, number, step, kl_seq / TOKENS, kl_seq, proxy, beta, tokens, True, values)


def _evaluation(
    number: int, step: int, kl_seq: float, fake: FakeTrial, rng: random.Random, index: int
) -> EvalMetrics:
    root = math.sqrt(kl_seq)
    beta = fake.setting.beta
    skill = 0.5 + (0.25 * math.exp(-(math.log10(beta / 0.1) ** 2)) if beta > 0 else 0.0)
    mean = 0.23 + skill * root - 0.19 * kl_seq if fake.gold is None else fake.gold[index]
    shared = random.Random(5)  # prompts are harder or easier for every trial alike
    gold = [mean + shared.gauss(0, 0.3) + rng.gauss(0, fake.noise) for _ in range(NUM_PROMPTS)]
    if fake.gold is not None:
        gold = [g - sum(gold) / len(gold) + mean for g in gold]
    proxy = [1.9 * (1 - math.exp(-kl_seq / 7)) + rng.gauss(0, 0.4) for _ in gold]
    samples = tuple(
        EvalSample(
            prompt_id=f"food-{i}",
            prompt=f"how long do I cook food {i} ?",
            completion=fake.texts[(i + index // 3) % len(fake.texts)],
            gold=gold[i],
            proxy=proxy[i],
            kl_seq=kl_seq * rng.uniform(0.5, 1.5),
            num_tokens=14,
            ended=True,
        )
        for i in range(4)
    )
    gold_mean, gold_se = _mean_se(gold)
    proxy_mean, proxy_se = _mean_se(proxy)
    return EvalMetrics(
        slot=0,
        trial_number=number,
        step=step,
        gold=gold_mean,
        gold_se=gold_se,
        proxy=proxy_mean,
        proxy_se=proxy_se,
        kl_token=kl_seq / TOKENS,
        kl_seq=kl_seq,
        gold_by_prompt=tuple(gold),
        proxy_by_prompt=tuple(proxy),
        values={"eval/completion_mean": TOKENS},
        samples=samples,
        others={
            name: _other(means[index], random.Random(f"{name}/{number}/{step}"))
            for name, means in fake.others.items()
        },
    )


def _other(mean: float, rng: random.Random) -> OtherGold:
    drawn = [rng.gauss(0, 0.1) for _ in range(NUM_PROMPTS)]
    centred = tuple(mean + x - sum(drawn) / NUM_PROMPTS for x in drawn)
    return OtherGold(mean, _mean_se(centred)[1], centred)


def _mean_se(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def _outcome(
    number: int,
    fake: FakeTrial,
    reason: StopReason,
    detail: str,
    steps: int,
    points: Sequence[EvalMetrics],
    study: StudySpec,
) -> TrialOutcome:
    told = reason not in (StopReason.PRUNED, StopReason.ERROR, StopReason.INTERRUPTED)
    verdict = Verdict(reason, detail)
    if not told:
        return TrialOutcome(number, 1, verdict, steps, None, None, None, None)
    worth = judge_trial(
        [point_of(p) for p in points], study.objective, study.kl_unit, steps, study.trainer.steps
    )
    value = worth.value if fake.value is None else fake.value
    return TrialOutcome(
        number, 1, verdict, steps, value, worth.is_feasible, worth.constraint, worth.best_step
    )


def _spread_times(folder: Path, number: int) -> None:
    """Give each row the time it would have had: 0.24 s a step."""
    for path in folder.glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in lines:
            row["time"] = 1_767_600_000 + 20.0 * number + 0.24 * row["step"]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
