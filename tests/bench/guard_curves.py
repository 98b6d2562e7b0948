"""Bad training, recorded: the curves that every guard must fire on, and the healthy ones that none may.

    python tests/bench/guard_curves.py bad [--only NAME]     trains about 10 short trials, 5 CPU minutes
    python tests/bench/guard_curves.py healthy STUDY          packs what healthy_curves.py recorded
    python tests/bench/guard_curves.py past-peak STUDY N...   packs trials of a study run without pruning

All write tests/guard/curves/*.json.gz. Bad: the built-in task with a setting or a proxy that breaks it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from kltune.launch.assemble import Ground, build_bank, find_inputs, load_ground, reference_scale
from kltune.spec.load import load_spec
from kltune.spec.trial import TrialSpec
from kltune.tasks.protocol import Sample
from kltune.trial.folder import TrialFolder
from tests.recorded_curves import FOLDER, of_folder, write_curves

ROOT = Path(__file__).parents[2]


class Scale:
    """The task's proxy, growing by a tenth at each call: a running reward without normalisation."""

    name = "growing"

    def __init__(self, proxy: Callable[[Sequence[Sample]], Sequence[float | None]]) -> None:
        self._proxy = proxy
        self._calls = 0

    def __call__(self, samples: Sequence[Sample]) -> list[float | None]:
        self._calls += 1
        factor = 1.1**self._calls
        return [None if s is None else s * factor for s in self._proxy(samples)]


@dataclass(frozen=True)
class ByText:
    """A proxy of one line."""

    name: str
    score: Callable[[Sample], float]

    def __call__(self, samples: Sequence[Sample]) -> list[float | None]:
        return [self.score(sample) for sample in samples]


def repeated(sample: Sample) -> float:
    words = sample.text.split()
    return float(len(words) - len(set(words)))


def rare_start(sample: Sample) -> float:
    """Whether it opens as one in a hundred of the reference's do: a large KL at the first token alone."""
    usual = ("Cook", "It", "Allow", "Not", "Many", "I", "That", "There")
    return float(not sample.text.startswith(usual))


@dataclass(frozen=True)
class Bad:
    name: str
    beta: float = 0.085
    penalty: str = "k2-loss"
    learning_rate: float = 3e-3
    steps: int = 40
    proxy: Callable[[Sample], float] | None = None
    algorithm: str = "grpo"


BAD = (
    Bad("rate x30", learning_rate=0.09, steps=20),
    Bad("rate 1", learning_rate=1.0, steps=10),
    Bad("beta 1000", beta=1000.0),
    Bad("rate 3e-6", learning_rate=3e-6),
    Bad("constant proxy", proxy=lambda _: 1.0),
    Bad("pays length", beta=0.0, proxy=lambda s: float(len(s.token_ids)), steps=60),
    Bad("pays short", beta=0.0, proxy=lambda s: -float(len(s.token_ids)), steps=60),
    Bad("pays repetition", beta=0.0, proxy=repeated, steps=60),
    Bad("pays one answer", beta=0.0, proxy=lambda s: float(s.text.count("minutes")), steps=60),
    Bad("pays a rare start", beta=0.1, proxy=rare_start, steps=60),
    Bad("growing reward", beta=0.1, algorithm="rloo", steps=60),
)


def record(bad: Bad, ground: Ground, folder: Path) -> None:
    """Train it, without guards."""
    spec = load_spec(
        ROOT / "sweeps" / "kitchen.yaml",
        ("budget.slots=1", "budget.workers=1", f"trainer.algorithm={bad.algorithm}"),
    ).spec
    scale = reference_scale(ground, spec, None)
    data = ground.data
    if bad.proxy is not None:
        data = replace(data, proxy=ByText(bad.name, bad.proxy))
    elif bad.algorithm == "rloo":
        data = replace(data, proxy=Scale(data.proxy))
    bank = build_bank(replace(ground, data=data), spec, scale)
    setting = TrialSpec.model_validate(
        {
            "beta": bad.beta,
            "penalty": bad.penalty if bad.beta else None,
            "learning_rate": bad.learning_rate,
            "seed": 7,
        }
    )
    trial = TrialFolder(folder, 0, 1)
    bank.admit(0, 0, setting, None)
    for step in range(bad.steps + 1):
        if step % spec.evaluate.every == 0:
            trial.append_eval(bank.evaluate([0])[0])
        if step < bad.steps:
            trial.append_step(bank.train_step()[0])


def bad_curves(only: str | None) -> None:
    torch.set_num_threads(1)
    loaded = load_spec(ROOT / "sweeps" / "kitchen.yaml", ("budget.slots=1", "budget.workers=1"))
    ground = load_ground(loaded.spec, find_inputs(loaded), None)
    for bad in BAD:
        if only in (None, bad.name):
            with tempfile.TemporaryDirectory() as name:
                record(bad, ground, Path(name))
                curve = of_folder(Path(name) / "trials" / "00000", bad.name)
            path = FOLDER / "bad" / f"{bad.name.replace(' ', '-')}.json.gz"
            write_curves(path, [curve])
            sys.stderr.write(f"{path.name} {path.stat().st_size} bytes\n")


def pack(study: Path, name: str, numbers: Sequence[int]) -> None:
    folders = sorted((study / "trials").iterdir())
    chosen = [f for f in folders if not numbers or int(f.name) in numbers]
    write_curves(FOLDER / f"{name}.json.gz", [of_folder(f, f"trial {int(f.name)}") for f in chosen])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["bad", "healthy", "past-peak"])
    parser.add_argument("study", type=Path, nargs="?")
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--only")
    flags = parser.parse_args()
    if flags.what == "bad":
        bad_curves(flags.only)
    else:
        pack(flags.study, flags.what, flags.numbers)
