"""A spec in, what its model, task and a bank on them show out: all of it for `kltune check`, the cheap part for every sweep.

The heavy half: importing this loads torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kltune.check.lines import OF_PROXY, cheap_lines, lines_of, lines_of_spec
from kltune.check.result import Line
from kltune.errors import SpecError
from kltune.grade import Grade
from kltune.launch.assemble import Ground, build_bank, find_inputs, load_ground, num_slots
from kltune.launch.check import Looked
from kltune.launch.saying import say
from kltune.metrics.record import RewardScale
from kltune.spec.load import LoadedSpec
from kltune.spec.study import StudySpec
from kltune.spec.task import LearnedProxySpec
from kltune.tasks.protocol import Sample, Scorer, Splits
from kltune.trainer.soundness.look import StandIn, look, look_cheaply

UNIT = RewardScale(sigma=1.0, std=1.0, mean=0.0, num_groups=1, mean_tokens=1.0)
"""sigma_R is not measured for a check: it scales the coefficient of a KL that is 0 in the step that is made."""

CHEAP_SAMPLES = 32
"""Completions that a sweep looks at."""


@dataclass(frozen=True, slots=True)
class _Silent:
    """A proxy whose model and tokens can be looked at, but that is not asked."""

    of: Scorer
    name: str = "length"

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return StandIn()(samples)

    @property
    def trunk(self) -> Any:
        """The language model under a learned reward; none where there is none."""
        return getattr(self.of, "trunk", None)

    @property
    def encode_prompt(self) -> Any:
        """How a learned reward reads a prompt; none where it reads text."""
        return getattr(self.of, "encode_prompt", None)


def look_at(loaded: LoadedSpec, samples: int | None) -> Looked:
    """Load what the spec names and run every probe; ``samples``: completions that are drawn.

    Raises:
        SpecError: prompts, scorers or a model that can't be used at all.
        TrialFault: memory ran out.
        EnvironmentMissingError: this machine lacks what the spec needs.
    """
    spec = loaded.spec
    inputs = find_inputs(loaded)
    is_unlearned = isinstance(inputs.task.proxy, LearnedProxySpec)
    say("loading the model and getting the proxy ready ...")
    ground = load_ground(spec, inputs, None, StandIn() if is_unlearned else None)
    found = look(
        build_bank(ground, spec, UNIT, 1),
        spec,
        slots=num_slots(spec, ground),
        samples=samples,
        say=say,
    )
    lines = lines_of_spec(spec, inputs.task.splits, found.tokens)
    if not is_unlearned:
        return Looked((*lines, *lines_of(found, spec)))
    # The stand-in is by length: neither its scores nor what gold has in common with them say anything.
    alone = replace(found, scoring=replace(found.scoring, pairs=()))
    probed = tuple(line for line in lines_of(alone, spec) if line.name not in OF_PROXY)
    skipped = (
        "proxy, reward_scale and gold against the proxy: the proxy is learned when the sweep starts, which then "
        "measures its spread and refuses one that is gold itself or constant",
    )
    return Looked((*lines, *probed), skipped)


def refuse_unsound(ground: Ground, spec: StudySpec, splits: Splits) -> None:
    """Look at what costs next to nothing, before a sweep starts: tokens, splits, masks, KL at step 0.

    No scorer of the user's is called: sigma_R was measured with them.

    Raises:
        SpecError: a line failed, with its name and remedy.
    """
    data = replace(ground.data, proxy=_Silent(ground.data.proxy), gold=StandIn(), golds={})
    bank = build_bank(replace(ground, data=data), spec, UNIT, 1)
    found = look_cheaply(bank, spec, samples=CHEAP_SAMPLES)
    failed = [line for line in cheap_lines(found, spec, splits) if line.grade is Grade.FAIL]
    if failed:
        listed = "\n".join(f"  {_told(line)}" for line in failed)
        raise SpecError(
            f"{len(failed)} check(s) failed before any training:\n{listed}\n"
            "run kltune check on this spec for the rest"
        )


def _told(line: Line) -> str:
    return f"{line.name} ({line.title}): {line.shown} {line.remedy}".rstrip()
