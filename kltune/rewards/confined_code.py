"""Main of the child that runs one program: JSON on standard input in, one line on a pipe of its own out.

Started as a file, in isolated mode, without the packages installed here. That the
program came to its end is said by a word that only this file was given: leaving early, or
printing, does not say it.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from pathlib import Path


def main() -> None:
    """Confine this process, then run the program."""
    confine = runpy.run_path(str(Path(__file__).with_name("confinement.py")))["confine"]
    job = json.loads(sys.stdin.buffer.read())
    pipe = int(sys.argv[1])
    lost = confine(job["memory_bytes"], job["file_bytes"], job["cpu_seconds"], job["folder"])
    os.write(pipe, (json.dumps(lost) + "\n").encode())
    # The kernel ends this process also where nobody is left to do it.
    signal.alarm(job["cpu_seconds"] + 1)
    word = job.pop("word")
    sys.argv[1:] = []
    names = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        exec(compile(job["program"], "<answer>", "exec"), names)
    except MemoryError:
        said = "MemoryError"
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything
        said = f"{type(error).__name__}: {error}"[:200]
    else:
        said = word
    # Without the interpreter's own end: threads and exit handlers of the program have no say.
    os.write(pipe, (json.dumps(said) + "\n").encode())
    os._exit(0)


if __name__ == "__main__":
    main()
