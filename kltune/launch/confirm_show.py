"""Everything that was measured in; the look noted, then table, JSON, files and the gates' exit code out."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TextIO

from rich.console import Console

from kltune.confirm import words
from kltune.confirm.design import FEWEST_SEEDS, Design, Role
from kltune.confirm.judge import judge
from kltune.confirm.looks import Look, note_look, other_designs, repeated_words
from kltune.confirm.plot import save_plot
from kltune.confirm.result import FILE, FOLDER, ArmFacts, ConfirmResult, Judgement
from kltune.confirm.table import confirm_table
from kltune.errors import ExitCode, RunError
from kltune.launch.confirm import Plan
from kltune.launch.confirm_record import (
    Cell,
    Judged,
    gold_array,
    other_golds,
    recorded_array,
    scored_array,
    whole_seeds,
)
from kltune.launch.saying import say
from kltune.metrics.jsonl import encode, write_json
from kltune.spec.trial import KLUnit
from kltune.tasks.protocol import Prompt, Scorer


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything is measured; what is left is to say it."""

    plan: Plan
    design: Design
    judged: Mapping[Cell, Judged]
    failed: Mapping[int, str]
    """Runs that could not be judged."""
    prompts: Sequence[Prompt]
    """Of the test split that were used, in order."""
    num_test: int
    """Of the whole split."""
    second: Scorer | None

    def conclude(self, result: TextIO, new_runs: int, began: float) -> ExitCode:
        """Judge, note the look, write, show; the exit code of the gates."""
        seeds = whole_seeds(self.design, self.judged)
        if len(seeds) < FEWEST_SEEDS:
            raise RunError(
                f"only {len(seeds)} of {len(self.design.seeds)} seeds have every setting judged, and {FEWEST_SEEDS} are needed; "
                f"{self._failures()}"
            )
        judgements = self._judgements(seeds)
        look = self._look(seeds, new_runs)
        others = other_designs(self.plan.study.path, look)
        looks = note_look(self.plan.study.path, look)
        notes = (*((repeated_words(others),) if others else ()), *self._notes(seeds))
        found = self._result(seeds, judgements, looks, notes, time.perf_counter() - began)
        self._write(found, result)
        return ExitCode.DONE if all(gate.holds for gate in found.gates) else ExitCode.GATE_FAILED

    def _judgements(self, seeds: Sequence[int]) -> tuple[Judgement, ...]:
        design, judged = self.design, self.judged
        unit = self.plan.study.spec.kl_unit
        names = [words.arm_name(arm, unit) for arm in design.arms]
        roles: list[Role] = [arm.role for arm in design.arms]
        arrays = {"gold": gold_array(design, judged, seeds)}
        for name in other_golds(judged, seeds):
            arrays[name] = recorded_array(name, design, judged, seeds)
        if self.second is not None:
            arrays[self.second.name] = scored_array(
                self.second,
                self.prompts,
                design,
                judged,
                seeds,
                self.plan.study.spec.model.answer_after,
            )
        return tuple(judge(name, names, roles, values) for name, values in arrays.items())

    def _look(self, seeds: Sequence[int], new_runs: int) -> Look:
        design = self.design
        per_run = design.num_prompts * design.samples
        unit = self.plan.study.spec.kl_unit
        return Look(
            command=("kltune", *sys.argv[1:]),
            what="; ".join(f"{words.arm_name(arm, unit)} @ step {arm.stop}" for arm in design.arms),
            seeds=[design.seeds[s] for s in seeds],
            digest=design.digest,
            completions=len(self.judged) * per_run,
            new_completions=new_runs * per_run,
        )

    def _result(
        self,
        seeds: Sequence[int],
        judgements: tuple[Judgement, ...],
        looks: int,
        notes: tuple[str, ...],
        seconds: float,
    ) -> ConfirmResult:
        spec, design = self.plan.study.spec, self.design
        return ConfirmResult(
            study=spec.name,
            seeds=tuple(design.seeds[s] for s in seeds),
            num_prompts=design.num_prompts,
            samples=design.samples,
            digest=design.digest,
            arms=tuple(self._facts(k, seeds) for k in range(len(design.arms))),
            judgements=judgements,
            kl_limit=spec.objective.kl_limit,
            kl_unit=spec.kl_unit.value,
            looks=looks,
            gates=tuple(r.gate(judgements[0]) for r in self.plan.requirements),
            notes=notes,
            seconds=seconds,
        )

    def _facts(self, k: int, seeds: Sequence[int]) -> ArmFacts:
        arm, spec = self.design.arms[k], self.plan.study.spec
        cells: list[Judged] = [self.judged[s, k] for s in seeds]
        limit = spec.objective.kl_limit
        in_unit = [c.kl_token if spec.kl_unit is KLUnit.TOKEN else c.kl_seq for c in cells]
        return ArmFacts(
            number=arm.number,
            role=arm.role,
            origin=arm.origin,
            name=words.arm_name(arm, spec.kl_unit),
            setting=arm.setting.model_dump(mode="json"),
            stop=arm.stop,
            select_value=arm.select_value,
            select_gold=arm.select_gold,
            kl_token=fmean(c.kl_token for c in cells),
            kl_seq=fmean(c.kl_seq for c in cells),
            kl_token_by_seed=tuple(c.kl_token for c in cells),
            over_limit=0 if limit is None else sum(kl > limit for kl in in_unit),
            proxy=fmean(c.proxy for c in cells),
            diverged=sum(c.is_diverged for c in cells),
        )

    def _notes(self, seeds: Sequence[int]) -> tuple[str, ...]:
        notes: list[str] = []
        if len(seeds) < len(self.design.seeds):
            left = len(self.design.seeds) - len(seeds)
            notes.append(
                f"{left} of {len(self.design.seeds)} seeds left out, since not every setting could be judged on them; {self._failures()}"
            )
        if self.design.num_prompts < self.num_test:
            notes.append(
                f"{self.design.num_prompts} of the task's {self.num_test} test prompts were used, evenly spread"
            )
        diverged = [
            f"{words.arm_name(arm, self.plan.study.spec.kl_unit)} ({count} of {len(seeds)} seeds)"
            for k, arm in enumerate(self.design.arms)
            if (count := sum(self.judged[s, k].is_diverged for s in seeds))
        ]
        if diverged:
            notes.append(
                f"diverged before its stop, and was judged at the weights before that: {', '.join(diverged)}"
            )
        return tuple(notes)

    def _failures(self) -> str:
        failed = self.failed
        if not failed:
            return "runs are missing"
        number, detail = next(iter(failed.items()))
        runs = "1 run" if len(failed) == 1 else f"{len(failed)} runs"
        return f"{runs} failed, the first (run {number}) by: {detail}"

    def _write(self, found: ConfirmResult, result: TextIO) -> None:
        folder = self.plan.study.path / FOLDER
        # Shown before it is written: a full disk must not cost the answer.
        if self.plan.request.as_json:
            result.write(encode(found.as_json()) + "\n")
            result.flush()
        else:
            Console(file=result).print(confirm_table(found))
        verb = "replaced" if (folder / FILE).exists() else "wrote"
        try:
            write_json(folder / FILE, found.as_json())
            save_plot(found, folder / "confirm.png")
        except OSError as error:
            raise RunError(f"{folder}: can't be written: {error.strerror}") from error
        say(f"{verb} {folder / FILE} and {folder / 'confirm.png'}")
