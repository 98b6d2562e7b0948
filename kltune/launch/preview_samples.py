"""A preview's request in, scored completions out: of the reference, and of a study's trained policies.

The heavy half of ``kltune preview``: importing this loads torch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from kltune.errors import RunError, SpecError
from kltune.launch.assemble import Ground, find_inputs, load_ground
from kltune.launch.inputs import check_inputs, fingerprints
from kltune.launch.preview import MIN_SAMPLES, Drawn, PreviewRequest
from kltune.launch.preview_draw import Plan, completions_of, draw_policy, scores_PN
from kltune.launch.preview_policies import Mixture, draw_trained
from kltune.launch.saying import say
from kltune.preview.curves import Scored
from kltune.preview.result import Subject
from kltune.spec.load import LoadedSpec
from kltune.statistics.best_of_n import tied_share
from kltune.statistics.reweight import balance
from kltune.trainer.data import spread_evenly
from kltune.trainer.rollout import Rollout
from kltune.trainer.scale import NUM_GROUPS

LEAST_PROMPTS = 32
"""Select prompts that are looked at, where the spec judges trials on fewer."""

FEWEST, MOST = 16, 256
"""Completions per prompt by default."""

SECONDS = 40.0
"""What drawing them may take on two slow cores, as reckoned; `FEWEST` are drawn in any case."""

TOKEN_SECONDS, PARAMETER_SECONDS = 5e-5, 1e-10
"""Of one token: overhead, and per parameter. Measured: 351,000 parameters 9e-5 s."""


_TRAIN = 2**16
"""Address of the draws for train prompts; policies are fewer."""


def draw_samples(request: PreviewRequest, loaded: LoadedSpec, study: Path | None) -> Drawn:
    """Load model and task, draw, score.

    Raises:
        SpecError: prompts, scorers or a model that can't be used.
        StudyError: the inputs are not those of the study any more.
        RunError: a scorer failed, or a checkpoint can't be read.
        EnvironmentMissingError: this machine lacks what is needed.
    """
    inputs = find_inputs(loaded)
    there = len(inputs.task.splits.select)
    if request.prompts is not None and request.prompts > there:
        raise SpecError(f"--prompts: the select split has {there} prompts (got {request.prompts})")
    if study is not None:
        check_inputs(study, fingerprints(inputs.task, inputs.source))
    say("loading the model and getting the proxy ready ...")
    ground = load_ground(loaded.spec, inputs, study)
    plan = make_plan(request, loaded, ground)
    say(
        f"drawing {plan.samples} completions of the reference for each of {len(plan.indices)} select prompts ..."
    )
    reference = draw_policy(ground, plan, plan.samples)
    train = _of_train(ground, plan)  # before a bank is put on the base
    mixture = None
    if request.target.is_dir():
        mixture = draw_trained(ground, plan, loaded.spec, request.target, reference)
    say("scoring by proxy and gold ...")
    scored, notes = _scored(ground, plan, reference, mixture)
    subject = _subject(loaded, plan, scored, mixture)
    return Drawn(scored, subject, notes, train)


def _of_train(ground: Ground, plan: Plan) -> Scored:
    """As many completions of train prompts as sigma_R is measured on, with uniforms of their own."""
    data = ground.data
    indices = tuple(spread_evenly(len(data.train), NUM_GROUPS))
    count = plan.trainer.group_size
    say(f"and {count} for each of {len(indices)} train prompts ...")
    own = replace(plan, indices=indices, samples=count)
    on_train = replace(ground, data=replace(data, select=data.train))
    scored, _ = _scored(on_train, own, draw_policy(on_train, own, count, _TRAIN), None)
    return scored


def make_plan(request: PreviewRequest, loaded: LoadedSpec, ground: Ground) -> Plan:
    """Which prompts, and how many completions of each."""
    spec, there = loaded.spec, len(ground.data.select)
    wanted = request.prompts or max(spec.evaluate.prompts, LEAST_PROMPTS)
    indices = tuple(spread_evenly(there, wanted))
    parameters = sum(p.numel() for p in ground.loaded.model.parameters())
    tokens = len(indices) * spec.trainer.max_new_tokens
    is_cpu = ground.loaded.device.type == "cpu"
    samples = request.samples or default_samples(parameters, tokens, is_cpu=is_cpu)
    seed = spec.seed if request.seed is None else request.seed
    return Plan(indices, samples, seed, spec.trainer)


def default_samples(parameters: int, tokens: int, *, is_cpu: bool) -> int:
    """Completions per prompt: a power of two that takes about `SECONDS`; ``tokens`` of one, over all prompts."""
    if not is_cpu:
        return MOST
    seconds = tokens * (TOKEN_SECONDS + PARAMETER_SECONDS * parameters)
    fitting = 2 ** math.floor(math.log2(max(1.0, SECONDS / seconds)))
    return min(MOST, max(FEWEST, fitting))


def _scored(
    ground: Ground, plan: Plan, reference: list[Rollout], mixture: Mixture | None
) -> tuple[Scored, tuple[str, ...]]:
    sources = [(plan.samples, reference)]
    if mixture is not None:
        sources += [(mixture.count, drawn) for drawn in mixture.drawn]
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for count, drawn in sources:
        samples = completions_of(ground, plan, drawn, count)
        tokens = np.array([len(s.token_ids) for s in samples], dtype=np.float64)
        parts.append(
            (
                scores_PN(ground.data.proxy, samples, plan),
                scores_PN(ground.data.gold, samples, plan),
                tokens.reshape(len(plan.indices), -1),
            )
        )
    proxy_PN, gold_PN, tokens_PN = (
        np.concatenate(column, axis=1) for column in zip(*parts, strict=True)
    )
    if mixture is None:
        return drop_unscored(Scored(proxy_PN, gold_PN, tokens_PN, plan.samples))
    if not np.isfinite(proxy_PN + gold_PN).all():
        raise RunError(
            "a scorer could not score some completions, and these can't be weighed; give the spec instead of the study, "
            "which previews the reference alone"
        )
    counts = np.array([count for count, _ in sources])
    log_density_PN = balance(mixture.log_ratio_SPM, counts)
    return Scored(proxy_PN, gold_PN, tokens_PN, plan.samples, log_density_PN), ()


def drop_unscored(scored: Scored) -> tuple[Scored, tuple[str, ...]]:
    """Leave out completions that a scorer could not score, as training does; every prompt keeps equally many.

    Raises:
        RunError: too few are left.
    """
    is_scored_PN = np.isfinite(scored.proxy_PN + scored.gold_PN)
    if is_scored_PN.all():
        return scored, ()
    kept_P = is_scored_PN.sum(axis=1)
    # A prompt that lost more than half of its completions would cost all others as many.
    prompts = np.flatnonzero(kept_P >= max(MIN_SAMPLES, scored.num_reference / 2))
    if not len(prompts):
        raise RunError("the scorers could score fewer than half of the completions of every prompt")
    fewest = int(kept_P[prompts].min())
    columns = np.stack([np.flatnonzero(is_scored_PN[p])[:fewest] for p in prompts])
    rows = prompts[:, None]
    lost = int((~is_scored_PN).sum())
    note = (
        f"{lost} of {is_scored_PN.size} completions could not be scored and are left out: {len(prompts)} prompts with "
        f"{fewest} completions each remain"
    )
    left = Scored(
        scored.proxy_PN[rows, columns],
        scored.gold_PN[rows, columns],
        scored.tokens_PN[rows, columns],
        fewest,
    )
    return left, (note,)


def _subject(loaded: LoadedSpec, plan: Plan, scored: Scored, mixture: Mixture | None) -> Subject:
    spec, own = loaded.spec, scored.of_reference()
    return Subject(
        name=spec.name,
        model=spec.model.base,
        split="select",
        num_prompts=len(own.proxy_PN),
        num_samples=own.num_reference,
        seed=plan.seed,
        temperature=spec.trainer.temperature,
        max_new_tokens=spec.trainer.max_new_tokens,
        mean_tokens=float(own.tokens_PN.mean()),
        tied_share=tied_share(own.proxy_PN),
        kl_unit=spec.kl_unit.value,
        beta_unit=spec.beta_unit.value,
        policies=() if mixture is None else mixture.names,
        samples_per_policy=0 if mixture is None else mixture.count,
    )
