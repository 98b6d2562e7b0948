"""A hundred healthy trials of the built-in task, for the false-alarm rates of the guards: two settings x fifty seeds.

    python tests/bench/healthy_curves.py STUDY [--part 0/2]

Writes trial folders under STUDY/trials. At this learning rate both settings' mean gold over seeds rises to the
end, so every alarm on them is a false one. (At the rate of sweeps/kitchen.yaml, three times as large, it falls
from step 40 on: those drops are real.) About 13 CPU seconds a trial; parts may run at once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from kltune.launch.assemble import build_bank, find_inputs, load_ground, reference_scale
from kltune.spec.load import load_spec
from kltune.spec.trial import TrialSpec
from kltune.trial.folder import TrialFolder

ROOT = Path(__file__).parents[2]
SETTINGS = (("k1-reward", 0.085), ("k2-loss", 0.15))
LEARNING_RATE = 1e-3
FIRST_SEED = 100
SEEDS = 50


def run(study: Path, part: int, parts: int) -> None:
    """Train every ``parts``-th trial, without pruning and without guards."""
    torch.set_num_threads(1)
    loaded = load_spec(ROOT / "sweeps" / "kitchen.yaml", ("budget.slots=1", "budget.workers=1"))
    spec = loaded.spec
    ground = load_ground(spec, find_inputs(loaded), None)
    scale = reference_scale(ground, spec, None)
    bank = build_bank(ground, spec, scale)
    for number in range(part, SEEDS * len(SETTINGS), parts):
        folder = TrialFolder(study, number, 1)
        if (folder.path / "config.json").exists():
            continue
        penalty, beta = SETTINGS[number % len(SETTINGS)]
        fields = {"beta": beta, "penalty": penalty, "seed": FIRST_SEED + number // len(SETTINGS)}
        setting = TrialSpec.model_validate({**fields, "learning_rate": LEARNING_RATE})
        bank.admit(0, number, setting, None)
        for step in range(spec.trainer.steps + 1):
            if step % spec.evaluate.every == 0:
                folder.append_eval(bank.evaluate([0])[0])
            if step < spec.trainer.steps:
                folder.append_step(bank.train_step()[0])
        folder.write_config(setting, "healthy", scale.sigma, spec.kl_unit, spec.beta_unit)
        bank.evict(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--part", default="0/1", metavar="I/N")
    flags = parser.parse_args()
    first, of = map(int, flags.part.split("/"))
    run(flags.study, first, of)
