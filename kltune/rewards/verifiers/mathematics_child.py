"""Main of the child that compares mathematical answers: lines ``{text, answer, seconds}`` in, ``{equal}`` out.

``equal`` is null where the right answer itself can't be read. Started as a file: what a policy
writes may keep the algebra busy for ever or fill the memory, and only a process can be ended.
"""

from __future__ import annotations

import importlib
import json
import math
import runpy
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MEMORY = 4 << 30
_FILE = 1 << 20
_CPU_SECONDS = 10**7
"""No limit: the process is kept; the alarm limits one job."""


def main() -> None:
    """Confine this process, say that it is up, then answer line by line until the pipe closes."""
    warnings.simplefilter("ignore")
    package = importlib.import_module("math_verify")  # an extra
    parse, verify = package.parse, package.verify
    warm = parse("$1$", parsing_timeout=None)
    verify(warm, warm, timeout_seconds=None)
    confined = Path(__file__).parents[1] / "confinement.py"
    lost = runpy.run_path(str(confined))["confine"](_MEMORY, _FILE, _CPU_SECONDS, sys.argv[1])
    _say({"unprevented": lost})
    for line in sys.stdin:
        job = json.loads(line)
        signal.alarm(math.ceil(job["seconds"]))  # nobody catches it, so it ends this process
        equal = _is_equal(job["text"], job["answer"], parse, verify)
        signal.alarm(0)
        _say({"equal": equal})


def _is_equal(
    text: str, answer: str, parse: Callable[..., Any], verify: Callable[..., Any]
) -> bool | None:
    right = _right(answer, parse)
    if not right:
        return None
    try:
        return bool(verify(right, parse(text, parsing_timeout=None), timeout_seconds=None))
    except Exception:  # noqa: BLE001 - the algebra may raise anything at what a policy writes
        return False


def _right(answer: str, parse: Callable[..., Any]) -> list[Any]:
    # LaTeX is only read between dollars or in a box.
    forms = (
        [f"${answer}$", answer] if "\\" in answer and "$" not in answer else [answer, f"${answer}$"]
    )
    for form in forms:
        try:
            found = parse(form, parsing_timeout=None)
        except Exception:  # noqa: BLE001 - as above
            continue
        if found:
            return found
    return []


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
