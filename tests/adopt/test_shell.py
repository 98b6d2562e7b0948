from __future__ import annotations

import pytest

from kltune.adopt.script import overrides_of
from kltune.adopt.shell import shell_of


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command] for command in shell_of(text).commands]


def test_words_have_their_lines() -> None:
    (command,) = shell_of("# one\nrun a \\\n  b\n").commands
    assert [(word.text, word.line) for word in command] == [("run", 2), ("a", 2), ("b", 2)]


def test_a_text_over_several_lines_is_filled_in() -> None:
    text = 'n=16\nC="\n  r.n=$n\n  r.t=1.0 \\\n  r.k=2"\nrun $C\n'
    assert words(text) == [["run", "r.n=16", "r.t=1.0", "r.k=2"]]


def test_text_may_be_added_to_a_variable() -> None:
    assert words('A="a.b=1"\nA+=" a.c=2"\nrun $A\n') == [["run", "a.b=1", "a.c=2"]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$((1024 * 32))", 32768),
        ("$((n*2+(3 - 1)))", 18),
        ("$(( $n / 3 ))", 2),
        ("$((-n % 5))", -3),
    ],
)
def test_whole_number_arithmetic_is_done(text: str, value: int) -> None:
    assert overrides_of(f"n=8\nrun a.b={text}\n").values == {"a.b": value}


@pytest.mark.parametrize(
    "text", ["$((1024 * m))", "$((2 ** 3))", "$((1 / 0))", "$(nproc --all)", "`a b`"]
)
def test_what_is_not_done_is_named_whole(text: str) -> None:
    assert overrides_of(f"run a.b={text} a.c=1\n").unreadable == {"a.b": text}


def test_a_file_that_is_read_in_may_have_set_anything() -> None:
    text = "KL=1\nsource ./more.sh\nN=2\nrun a.kl=$KL a.n=$N a.m=${M:-3}\n"
    found = overrides_of(text)
    assert (found.values, found.unreadable) == ({"a.n": 2}, {"a.kl": "$KL", "a.m": "${M:-3}"})
    assert found.notes == (
        "line 2: ./more.sh is read in there and not followed: it may set anything",
    )
    assert overrides_of("K=1\n. a.sh\nrun a.b=$K").unreadable == {"a.b": "$K"}
    assert overrides_of("K=1\nsource venv/bin/activate\nrun a.b=$K").values == {"a.b": 1}


@pytest.mark.parametrize(
    "text",
    [
        "[ $BIG ] && KL=1\nrun a.b=$KL",
        "KL=2\n[ $BIG ] && KL=1\nrun a.b=$KL",
        "KL=1\nif x; then KL=2; fi\nrun a.b=$KL",
        "if x; then KL=1; else KL=2; fi\nrun a.b=$KL",
        "if x; then\n  KL=1\nfi\nrun a.b=$KL",
        "case $x in\n  a) KL=1 ;;\nesac\nrun a.b=$KL",
        "for KL in 1 2; do\nrun a.b=$KL\ndone",
        "KL=1\nrun() { python x a.b=$KL; }\nKL=2 run",
    ],
)
def test_a_variable_that_may_be_another_is_not_filled_in(text: str) -> None:
    found = overrides_of(text)
    assert found.values == {}
    assert list(found.unreadable) == ["a.b"]


def test_after_the_end_of_a_branch_all_is_sure_again() -> None:
    text = "if x; then\n  echo\nfi\nKL=1\nif y; then echo; fi\nN=2\nrun a.b=$KL a.c=$N"
    assert overrides_of(text).values == {"a.b": 1, "a.c": 2}
