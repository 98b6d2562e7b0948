"""A sound spec in; out: all that its trials train with, and a study folder in which every later member finds the same.

Whoever sets up holds the study alone. ``reference.json`` is written last: where it stands, the study is set up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kltune.launch.assemble import (
    Ground,
    Inputs,
    keep_scale,
    kept_scale,
    load_ground,
    reference_scale,
)
from kltune.launch.check_probes import refuse_unsound
from kltune.launch.disk import DiskNeed, disk_need
from kltune.launch.exchange import bring_set_up, send_set_up
from kltune.launch.inputs import note_inputs
from kltune.launch.judges import keep_judges
from kltune.launch.proxy import keep_proxy
from kltune.launch.saying import say
from kltune.metrics.env import write_env
from kltune.metrics.jsonl import write_json
from kltune.metrics.record import RewardScale
from kltune.metrics.tracker import redact
from kltune.spec.doubts import find_doubts
from kltune.spec.load import LoadedSpec, resolved
from kltune.study.sampler import plan_search
from kltune.study.storage import OpenStudy
from kltune.study.whereabouts import note_folder


@dataclass(frozen=True, slots=True)
class Ready:
    """Everything that works before a trial starts."""

    ground: Ground
    scale: RewardScale
    prints: Mapping[str, str]
    """Fingerprints of prompts, scorers and model."""
    disk: DiskNeed
    """What the study takes on disk."""


def get_ready(
    spec: LoadedSpec, inputs: Inputs, prints: Mapping[str, str], study_path: Path | None
) -> Ready:
    """Load the base, get the proxy ready, measure sigma_R; what the study already has is read instead.

    ``study_path``: of a study that goes on; nothing is written. Raises `SpecError` and
    `EnvironmentMissingError` where prompts, scorers or model can't be used.
    """
    for doubt in (*find_doubts(spec.spec), *inputs.task.splits.doubts, *inputs.task.splits.notes):
        say(f"note: {doubt}")
    say("loading the model and getting the proxy ready ...")
    if study_path is not None:
        bring_set_up(spec.spec, study_path)
    ground = load_ground(spec.spec, inputs, study_path)
    disk = disk_need(spec.spec, ground.loaded)  # while no adapters are on the base
    scale = reference_scale(ground, spec.spec, study_path)
    refuse_unsound(ground, spec.spec, inputs.task.splits)
    return Ready(ground, scale, prints, disk)


def is_set_up(study_path: Path) -> bool:
    """Whether a member finds everything that it needs in the folder."""
    has_spec = all((study_path / name).is_file() for name in ("spec.yaml", "resolved.json"))
    return has_spec and kept_scale(study_path) is not None


def write_down(
    opened: OpenStudy, spec: LoadedSpec, inputs: Inputs, ready: Ready, command: Sequence[str]
) -> None:
    """Put into the study folder what the next session, and every other member, goes by; closes a study that can't have it."""
    try:
        _write_down(opened.path, spec, inputs, ready, command)
        note_folder(opened)
    except BaseException:
        opened.close()
        raise


def _write_down(
    study_path: Path, spec: LoadedSpec, inputs: Inputs, ready: Ready, command: Sequence[str]
) -> None:
    (study_path / "spec.yaml").write_text(redact(spec.text), encoding="utf-8")
    facts = resolved(spec.spec)
    if facts["tracking"]["mlflow"] is not None:
        facts["tracking"]["mlflow"] = redact(facts["tracking"]["mlflow"])
    write_json(study_path / "resolved.json", facts)
    write_env(study_path, ready.ground.loaded.device_facts(), tuple(command))
    note_inputs(study_path, ready.prints, inputs.task)
    keep_proxy(inputs.task, ready.ground.data.proxy, study_path)
    keep_judges(ready.ground.data, study_path)
    keep_scale(study_path, ready.scale)
    send_set_up(spec.spec, study_path)


def plan_words(spec: LoadedSpec) -> str:
    """What will be searched, on one line."""
    return plan_search(spec.spec).describe()


def scale_words(scale: RewardScale) -> str:
    """sigma_R, and what it was measured on."""
    return (
        f"sigma_R {scale.sigma:.4g}: spread of the proxy within a prompt, under the reference "
        f"({scale.num_groups} prompts, {scale.mean_tokens:.1f} tokens per completion)"
    )
