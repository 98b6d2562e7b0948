from __future__ import annotations

from kltune.diagnose import cause_list
from kltune.diagnose.result import Cause

CAUSES = [value for value in vars(cause_list).values() if isinstance(value, Cause)]


def test_names_are_their_own() -> None:
    assert len({cause.name for cause in CAUSES}) == len(CAUSES)


def test_every_cause_says_what_to_do_in_a_sentence() -> None:
    for cause in CAUSES:
        assert cause.first[0].isupper()
        assert cause.first.endswith(".")
        assert not cause.text.endswith(".")


def test_the_mistakes_of_the_articles_are_mended() -> None:
    """kl-reference §6: a stuck policy wants a lower beta or a higher target; a wider clip range does not calm."""
    assert "Lower beta" in cause_list.BETA_TOO_LARGE.first
    assert "raise the target" in cause_list.BETA_TOO_LARGE.first
    assert "tighter" in cause_list.CLIPPING.first
    assert "before touching beta" in cause_list.NORMALISATION.first
    assert "memory" not in " ".join(cause.text for cause in CAUSES)
