"""Completions with Python code and unit tests in, share of the tests that pass out."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kltune.errors import SpecError
from kltune.rewards.context import RewardContext
from kltune.rewards.fingerprint import digest
from kltune.rewards.sandbox import Finished, Limits, run_program
from kltune.spec.verifiers import CodeVerifierSpec
from kltune.tasks.protocol import Prompt, Sample

LOG = logging.getLogger(__name__)
_FENCED: Final = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)


class CodeVerifier:
    """Runs the code of a text, each time with one test after it, in a confined child process."""

    name = "code verifier"

    def __init__(self, spec: CodeVerifierSpec, context: RewardContext) -> None:
        """Check the tests of every prompt; nothing is run.

        Raises:
            SpecError: a prompt without tests, or with one that is no Python.
        """
        self.fingerprint = digest(spec)
        self._spec, self._field = spec, context.field
        self._limits = Limits(spec.timeout, spec.memory_mib, spec.file_mib)
        self._has_warned = False
        context.check_columns([spec.tests])
        for prompt in context.prompts:
            for test in self._tests(prompt):
                try:
                    compile(test, "<test>", "exec")
                except (SyntaxError, ValueError) as error:
                    raise SpecError(
                        f"{context.field}: a test of prompt {prompt.id!r} is no Python ({error}): {test[:60]!r}"
                    ) from error

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        """Share of the tests that each sample passes; equal programs run once.

        Raises:
            EnvironmentMissingError: no child process can be started here.
        """
        wanted = [
            [f"{code_of(sample.text)}\n\n{test}\n" for test in self._tests(sample.prompt)]
            for sample in samples
        ]
        programs = list(dict.fromkeys(program for one in wanted for program in one))
        at_once = self._spec.parallel or len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(at_once, thread_name_prefix="code") as pool:
            ended = dict(
                zip(
                    programs,
                    pool.map(lambda p: run_program(p, self._limits), programs),
                    strict=True,
                )
            )
        self._warn(list(ended.values()))
        return [self._score([ended[program].has_passed for program in one]) for one in wanted]

    def _score(self, passed: Sequence[bool]) -> float:
        return float(all(passed)) if self._spec.score == "all" else sum(passed) / len(passed)

    def _tests(self, prompt: Prompt) -> list[str]:
        given = prompt.columns[self._spec.tests]
        if isinstance(given, str) and given.lstrip().startswith("["):
            with contextlib.suppress(ValueError):
                given = json.loads(given)  # a list, as a .csv file holds it
        tests = [given] if isinstance(given, str) else given
        if (
            not isinstance(tests, list | tuple)
            or not tests
            or not all(isinstance(t, str) for t in tests)
        ):
            raise SpecError(
                f"{self._field}: the column {self._spec.tests!r} of prompt {prompt.id!r} must hold Python text or a "
                f"list of it (got {str(given)[:60]!r})"
            )
        return [str(test) for test in tests]

    def _warn(self, ended: Sequence[Finished]) -> None:
        lost = next((one.unprevented for one in ended if one.unprevented), ())
        if lost and not self._has_warned:
            self._has_warned = True
            LOG.warning(
                "%s: this system can't confine code fully: %s", self._field, "; ".join(lost)
            )


def code_of(text: str) -> str:
    """The fenced blocks of ``text``, one after another; the whole text where there is none."""
    blocks = _FENCED.findall(text)
    return "\n\n".join(blocks) if blocks else text
