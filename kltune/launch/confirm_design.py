"""A study and how many settings to confirm in; which settings, each with its stop, and about how long out."""

from __future__ import annotations

from dataclasses import replace

from kltune.confirm.design import Arm, Design
from kltune.report.recommend import Recommendation, is_baseline
from kltune.report.rows import StudyRows, TrialRow
from kltune.spec.study import ObjectiveSpec
from kltune.spec.trial import TrialSpec
from kltune.trial.words import is_noise


def choose_arms(study: StudyRows, found: Recommendation, top: int) -> tuple[Arm, ...]:
    """The recommended setting, the next best feasible ones by told value, all baselines, the start.

    Distinct ones only: a setting that was tried twice, or that a recipe is as well, is in once. A repeat
    for the noise floor is no setting of its own. A baseline without any checkpoint after step 0 (it failed
    at once) can't be: there is no stop for it.
    """
    objective = study.spec.objective
    candidates = sorted(
        (
            t
            for t in study.trials
            if t.is_candidate and not is_baseline(t) and not is_noise(t.origin)
        ),
        key=lambda t: (-(t.value or 0.0), t.number),
    )
    rows = [t for t in study.trials if is_baseline(t)]
    arms = [replace(_arm(found.best, objective), role="recommended")]
    seen = {_setting_key(arms[0].setting)}
    baselines: list[Arm] = []
    for row in rows:
        key = _setting_key(row.setting)
        if row.peak is None or stop_of(row, objective) < 1 or key in seen:
            continue
        seen.add(key)
        baselines.append(_arm(row, objective))
    for row in candidates:
        key = _setting_key(row.setting)
        if len(arms) >= top:
            break
        if key in seen:
            continue
        seen.add(key)
        arms.append(_arm(row, objective))
    start = TrialSpec(beta=0.0, learning_rate=found.best.setting.learning_rate)
    return (*arms, *baselines, Arm(None, "start", "start", start, 0, None, _start_gold(found.best)))


def stop_of(row: TrialRow, objective: ObjectiveSpec) -> int:
    """The step at which a trial's setting is used: its best checkpoint where the objective looks for one."""
    if objective.metric == "gold_peak" and row.peak is not None:
        return row.peak.step
    return row.steps_run


def seconds_needed(
    study: StudyRows, design: Design, missing_steps: int, missing_runs: int
) -> float | None:
    """About how long the missing runs take, by the study's own trials; none where those don't say.

    As many at a time as the study had: its wall clock over the seconds in its slots.
    """
    step_s = _mean(
        [(t.cost.steps.seconds, t.cost.steps.rows - t.cost.steps.untimed) for t in study.trials]
    )
    judge_s = _mean(
        [
            (t.cost.evaluations.seconds, t.cost.evaluations.rows - t.cost.evaluations.untimed)
            for t in study.trials
        ]
    )
    if step_s is None or judge_s is None:
        return None
    judged = study.spec.evaluate
    more = design.num_prompts * design.samples / max(1, judged.prompts * judged.samples)
    in_slots = missing_steps * step_s + missing_runs * judge_s * more
    wall, busy = study.timing.get("wall_s"), sum(t.seconds for t in study.trials)
    at_once = busy / wall if isinstance(wall, int | float) and wall > 0 and busy > 0 else 1.0
    return in_slots / max(1.0, at_once)


def _arm(row: TrialRow, objective: ObjectiveSpec) -> Arm:
    stop = stop_of(row, objective)
    at_stop = next((c for c in row.checkpoints if c.step == stop), None)
    return Arm(
        number=row.number,
        role="baseline" if is_baseline(row) else "candidate",
        origin=row.origin,
        setting=row.setting,
        stop=stop,
        select_value=row.value,
        select_gold=None if at_stop is None else at_stop.gold,
    )


def _start_gold(row: TrialRow) -> float | None:
    return None if row.start is None else row.start.gold


def _setting_key(setting: TrialSpec) -> str:
    return setting.model_copy(update={"seed": 0}).model_dump_json()


def _mean(parts: list[tuple[float, int]]) -> float | None:
    rows = sum(count for _, count in parts)
    return sum(seconds for seconds, _ in parts) / rows if rows else None
