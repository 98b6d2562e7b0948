from __future__ import annotations

from dataclasses import replace

import pytest
from fake_transfer import result, subject

from kltune.errors import SpecError
from kltune.statistics.drift import Interval
from kltune.transfer.compare import compare_sizes, size_words
from kltune.transfer.result import Kind, Quantity, TransferResult


def quantity(found: TransferResult, key: str) -> Quantity:
    return next(q for q in found.quantities if q.key == key)


def test_a_study_that_is_the_same_on_every_size_transfers() -> None:
    found = result()
    assert [s.study for s in found.studies] == ["small", "medium", "large"]
    assert found.beta.kind is Kind.TRANSFERS
    assert [r.kind for r in found.rankings] == [Kind.TRANSFERS] * 3
    assert quantity(found, "kl_peak").kind is Kind.TRANSFERS
    assert quantity(found, "kl_reached").kind is Kind.TRANSFERS
    assert (len(found.matched), found.unmatched) == (16, 0)


def test_a_best_beta_that_moves_is_told_with_its_factor() -> None:
    beta = result(factor=6.0).beta
    assert beta.kind is Kind.SHIFTS
    assert beta.factor.low is not None
    assert beta.factor.high is not None
    assert beta.factor.low < 6 < beta.factor.high
    assert "from 0.093 M to 1.4 M parameters by a factor" in beta.words


def test_the_law_has_the_word_on_the_peak_where_it_has_one_everywhere() -> None:
    sizes = ("small", "medium", "large")
    laws = (Interval(1.0, 0.9, 1.1), Interval(2.0, 1.8, 2.2), Interval(4.0, 3.6, 4.4))
    subjects = [replace(subject(s), law_peak=law) for s, law in zip(sizes, laws, strict=True)]
    peak = quantity(compare_sizes(subjects, 0), "kl_peak")
    assert peak.name == "KL at which gold peaks (law)"
    assert peak.kind is Kind.SHIFTS
    assert peak.factor.value == pytest.approx(4.0, rel=0.05)
    one_silent = [*subjects[:2], replace(subjects[2], law_peak=Interval(None))]
    assert "same settings" in quantity(compare_sizes(one_silent, 0), "kl_peak").name


def test_few_trials_are_named_as_the_reason() -> None:
    found = compare_sizes([subject("small", num=3), subject("large", num=3)], 0)
    assert found.beta.kind is Kind.UNKNOWN
    assert (
        "5 trials that vary in it are needed in each study; small has 4 such trials"
        in found.beta.words
    )
    assert found.rankings[0].kind is Kind.UNKNOWN


def test_settings_that_one_study_did_not_judge_are_dropped_and_counted() -> None:
    small, large = subject("small"), subject("large")
    pruned = replace(large.trials[0], value=None, scores=())
    found = compare_sizes([small, replace(large, trials=(pruned, *large.trials[1:]))], 0)
    assert (len(found.matched), found.unmatched) == (15, 1)


def test_an_unfinished_study_and_another_learning_rate_are_noted() -> None:
    trainer = {"steps": 80, "prompts": 8, "group_size": 8, "learning_rate": 2e-3}
    rest = {"max_new_tokens": 32}
    found = compare_sizes([subject("small"), subject("large", trainer={**trainer, **rest})], 0)
    assert "small has 16 of the 24 trials" in found.notes[0]
    assert any("0.001 in small, 0.002 in large" in note for note in found.notes)


def test_studies_that_can_not_be_compared_are_refused() -> None:
    with pytest.raises(SpecError, match="same model"):
        compare_sizes([subject("small"), subject("small")], 0)


def test_sizes_are_short() -> None:
    assert [size_words(n) for n in (92_688, 135_000_000, 1_500_000_000)] == [
        "0.093 M",
        "135 M",
        "1.5 B",
    ]
