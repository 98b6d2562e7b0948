from __future__ import annotations

from dataclasses import replace

import pytest
from fake_transfer import subject

from kltune.errors import SpecError
from kltune.transfer.rules import check_comparable, match_trials, spec_differences


def test_what_must_be_the_same_is_named_with_both_values() -> None:
    objective = {"metric": "gold_final", "kl_limit": 0.5}
    with pytest.raises(SpecError) as refusal:
        check_comparable([subject("small"), subject("large", objective=objective, seed=3)])
    told = str(refusal.value)
    assert "objective.metric: gold_peak in small, gold_final in large" in told
    assert "seed: 0 in small, 3 in large" in told


def test_what_belongs_to_size_or_budget_may_differ() -> None:
    other = subject(
        "large", budget={"trials": 12}, tracking={"enabled": False}, pruning={"peers": 3}
    )
    assert spec_differences(subject("small"), other) == []
    check_comparable([subject("small"), other])


def test_one_study_the_same_model_and_the_same_size_are_refused() -> None:
    small, large = subject("small"), subject("large")
    with pytest.raises(SpecError, match=r"at least two studies .* \(got 1\)"):
        check_comparable([small])
    with pytest.raises(SpecError, match=r"again have the same model \(builtin:kitchen-small\)"):
        check_comparable([small, replace(small, study="again")])
    with pytest.raises(SpecError, match="have the same 92,688 parameters"):
        check_comparable([small, replace(large, parameters=small.parameters)])


def test_recipes_are_matched_by_name_and_others_by_their_numbers() -> None:
    small, large = subject("small"), subject("large")
    rows, unmatched = match_trials([small, large])
    assert (len(rows), unmatched) == (16, 0)
    recipe = next(row for row in rows if row[0].origin.startswith("baseline"))
    assert recipe[0].setting.beta != recipe[1].setting.beta
    first = large.trials[0]
    moved = replace(
        first, setting=first.setting.model_copy(update={"beta": first.setting.beta * 1.01})
    )
    rows, unmatched = match_trials([small, replace(large, trials=(moved, *large.trials[1:]))])
    assert (len(rows), unmatched) == (15, 2)


def test_another_learning_rate_does_not_part_settings_unless_it_is_searched() -> None:
    small, large = subject("small"), subject("large")
    faster = tuple(
        replace(t, setting=t.setting.model_copy(update={"learning_rate": 5e-3}))
        for t in large.trials
    )
    large = replace(large, trials=faster)
    assert match_trials([small, large])[1] == 0
    search = {
        **small.spec.model_dump(mode="json")["search"],
        "learning_rate": {"log": [1e-4, 1e-2]},
    }
    searched = [
        replace(
            s, spec=s.spec.model_copy(update={"search": type(s.spec.search).model_validate(search)})
        )
        for s in (small, large)
    ]
    assert len(match_trials(searched)[0]) == 2  # the recipe and beta = 0, by name
