from __future__ import annotations

import pytest

from kltune.adopt.script import flags_of, overrides_of


def test_overrides_are_found_with_variables_filled_in() -> None:
    text = """
    KL=0.002
    export LR="1e-6"
    files="['$HOME/a', 'b']"
    python -m x a.kl=$KL a.lr=${LR} +a.more=${MORE:-7} \\
        a.name='two words' a.files="$files" a.flag=True a.none=null a.list=[1,2]
    """
    found = overrides_of(text)
    assert found.values == {
        "a.kl": 0.002,
        "a.lr": 1e-6,
        "a.more": 7,
        "a.name": "two words",
        "a.flag": True,
        "a.none": None,
        "a.list": [1, 2],
    }
    assert list(found.unreadable) == ["a.files"]


def test_the_last_of_two_wins_and_comments_are_no_settings() -> None:
    found = overrides_of("run a.b=1 \\\n  # a.b=2 \\\n  a.b=3 # a.b=4\n")
    assert found.values == {"a.b": 3}


def test_a_command_in_a_value_is_named_and_not_run() -> None:
    found = overrides_of("run a.b=$(nproc) a.c=`date` a.d=$1 a.e=${a.b}")
    assert set(found.unreadable) == {"a.b", "a.c", "a.d"}
    assert found.values == {"a.e": "${a.b}"}  # Hydra's own reference


def test_a_removed_key_is_named() -> None:
    assert overrides_of("run ~a.b a.c=1").notes == (
        "~a.b (Hydra's removal of a key) is not followed",
    )


def test_flags_with_none_one_and_two_values() -> None:
    found = flags_of("run --switch --one 1e-5 --two 0.2 0.28 --eq=3 --neg -1 --text a/b --last")
    assert found.values == {
        "--switch": True,
        "--one": 1e-5,
        "--two": [0.2, 0.28],
        "--eq": 3,
        "--neg": -1,
        "--text": "a/b",
        "--last": True,
    }


def test_an_array_of_flags_ends_each_line() -> None:
    text = 'args=(\n  --a 1  # one\n  # --a 2\n  --b\n  --c 3 )\npython run.py "${args[@]}" "$@"\n'
    assert flags_of(text).values == {"--a": 1, "--b": True, "--c": 3}


def test_a_flag_at_the_end_of_a_line_takes_nothing_of_the_next() -> None:
    assert flags_of("run --a 1\npython other.py\n").values == {"--a": 1}


def test_rays_own_flags_are_not_the_programs() -> None:
    text = "ray job submit --address=http://x --runtime-env-json='{\"a\": 1}' -- python y --lr 1\n"
    assert flags_of(text).values == {"--lr": 1}


def test_an_unfilled_variable_of_a_flag_is_named() -> None:
    assert flags_of("run --model ${MODEL_PATH} --lr 1").unreadable == {"--model": "${MODEL_PATH}"}


@pytest.mark.parametrize("text", ['a "', "a 'b\nc", "(((", "$(", "\\", "", "a=(", "--"])
def test_a_broken_script_is_no_crash(text: str) -> None:
    overrides_of(text)
    flags_of(text)


def test_a_variable_of_two_branches_is_not_guessed() -> None:
    text = "if x; then\n  KL=0.1\nelse\n  KL=0.2\nfi\nN=4\nN=4\nrun a.kl=$KL a.n=$N\n"
    found = overrides_of(text)
    assert (found.values, found.unreadable) == ({"a.n": 4}, {"a.kl": "$KL"})


def test_a_default_of_a_variable_is_taken_when_nothing_sets_it() -> None:
    text = "A=${A:-0.1}\nrun a.b=$A a.c=${C:-${D:-3}} a.e=${E:=x}\n"
    assert overrides_of(text).values == {"a.b": 0.1, "a.c": 3, "a.e": "x"}


def test_what_is_added_to_a_variable_is_kept() -> None:
    text = 'ARGS="a.b=1"\nARGS="$ARGS a.c=2"\nrun $ARGS\n'
    assert overrides_of(text).values == {"a.b": 1, "a.c": 2}


def test_a_key_that_stands_twice_in_a_command_is_said() -> None:
    found = overrides_of("run a.b=1 a.b=2\n")
    assert found.values == {"a.b": 2}
    assert found.notes == ("a.b stands there more than once: the last one, 2, is taken",)
    assert flags_of("run --a 1 --a 2").notes[0].startswith("--a stands there more than once")
    assert flags_of("run --a 1 --a 1").notes == ()


def test_two_commands_with_different_values_leave_a_key_open_with_both_lines() -> None:
    found = overrides_of("run a.b=1\nrun a.b=2\n")
    assert (found.values, found.unreadable) == ({}, {"a.b": "1 in line 1 and 2 in line 2"})
    assert overrides_of("run a.b=1\nrun a.b=1\n").values == {"a.b": 1}


def test_a_stray_word_overrides_nothing_and_one_that_differs_is_named() -> None:
    text = "python -m main_ppo a.b=1\necho a.b=9 a.c=9\na.b=2 a.d=3\n"
    found = overrides_of(text, "main_ppo")
    assert found.values == {}
    assert found.unreadable == {
        "a.b": "1 in line 1 and 2 in line 3",
        "a.d": "3 outside the command that is started (line 3)",
    }
    other = "python sft.py a.b=7\npython -m main_ppo a.b=1\n"
    assert overrides_of(other, "main_ppo").values == {"a.b": 1}


def test_an_array_counts_where_it_is_expanded_alone() -> None:
    text = 'A=(a.b=1\n  a.c=2)\nB=(a.b=7)\nrun "${A[@]}" a.d=3\n'
    assert overrides_of(text).values == {"a.b": 1, "a.c": 2, "a.d": 3}
    text = 'A=(\n  a.b=$(nproc)\n  a.c=2  # (two\n)\nrun "${A[@]}"\n'
    assert overrides_of(text).values == {"a.c": 2}


def test_what_one_branch_adds_is_not_guessed() -> None:
    text = 'A=(a.b=1)\nif x; then\n  A+=(a.c=2)\n  E="a.e=5"\nfi\nrun "${A[@]}" $E\n'
    found = overrides_of(text)
    assert found.values == {"a.b": 1}
    assert found.unreadable == {
        "a.c": "2 in a branch of the script alone (line 3)",
        "a.e": "5 in a branch of the script alone (line 4)",
    }


def test_a_command_in_quotes_is_its_words() -> None:
    text = 'CMD="python -m main_ppo a.b=1 \\\n a.c=2"\neval "$CMD"\n'
    assert overrides_of(text, "main_ppo").values == {"a.b": 1, "a.c": 2}


def test_what_is_passed_on_is_no_value_of_the_last_flag() -> None:
    assert flags_of('run --a 1 "$@"').values == {"--a": 1}
    assert flags_of("run --a 1 $MORE").values == {"--a": 1}
