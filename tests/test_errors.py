from __future__ import annotations

import pickle

import pytest

from kltune import errors
from kltune.errors import ExitCode, KltuneError, TrialFault

TREE = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, KltuneError)
]


def test_exit_codes_are_those_of_the_design() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "RUN_ERROR": 1,
        "USAGE": 2,
        "NO_FEASIBLE_TRIAL": 3,
        "GATE_FAILED": 4,
        "ENVIRONMENT": 5,
        "TERMINATED": 75,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize("kind", TREE)
def test_an_error_survives_the_way_between_workers(kind: type[KltuneError]) -> None:
    args = ((1, 2), "what is wrong") if issubclass(kind, TrialFault) else ("what is wrong",)
    error = pickle.loads(pickle.dumps(kind(*args)))
    assert type(error) is kind
    assert str(error) == "what is wrong"
    assert error.args == args


@pytest.mark.parametrize("kind", TREE)
def test_every_error_is_in_the_drawing_with_its_exit_code(kind: type[KltuneError]) -> None:
    assert errors.__doc__ is not None
    (line,) = [line for line in errors.__doc__.splitlines() if f"{kind.__name__} " in line]
    # A fault ends trials, not the process.
    code = "-" if issubclass(kind, TrialFault) else str(int(kind.exit_code))
    assert kind is KltuneError or f" {code} " in line
