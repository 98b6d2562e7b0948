from __future__ import annotations

import numpy as np
import pytest

from kltune.audit.gram import GramStream
from kltune.audit.statistics import Alignment, Estimate, align
from kltune.audit.verdict import Kind, Verdict, judge
from kltune.spec.penalty import Penalty

GAP = Alignment(Estimate(0.9, 0.01), Estimate(0.9, 0.01), 0.92, Estimate(0.09, 0.01))
TRUE = [0.3719, -0.0153, -0.1724, -0.1843]

# Expected gradients of kl-reference.md §1.2 with respect to the logits, one token, on policy.
TOY = {
    Penalty.K1_REWARD: TRUE,
    Penalty.K2_LOSS: TRUE,
    Penalty.K1_LOSS: [0.0, 0.0, 0.0, 0.0],
    Penalty.K3_LOSS: [0.3, 0.1, -0.1, -0.3],
    Penalty.ABS_LOSS: [0.24, 0.18, -0.28, -0.14],
    Penalty.K3_REWARD: [0.0719, -0.1153, -0.0724, 0.1157],
    Penalty.K2_REWARD: [0.1757, -0.1318, -0.0879, 0.0439],
}


def enumerated(
    gradient: list[float], full: list[float], local: list[float]
) -> tuple[Alignment, Alignment, Alignment]:
    stream = GramStream(1, ("full", "local"), is_exact=True)
    stream.add({"g": np.array(gradient), "full": np.array(full), "local": np.array(local)})
    gram = stream.finish()
    return align(gram, "g", "full"), align(gram, "g", "local"), align(gram, "local", "full")


def verdict(
    penalty: Penalty, gradient: list[float], full: list[float], local: list[float]
) -> Verdict:
    return judge(penalty, *enumerated(gradient, full, local))


@pytest.mark.parametrize(
    ("penalty", "kind", "words"),
    [
        (Penalty.K1_REWARD, Kind.FULL, "as good as exact"),
        (Penalty.K2_LOSS, Kind.LOCAL, "token-local: misses less than 5 % of the sequence gradient"),
        (Penalty.K1_LOSS, Kind.NOISE, "no pull: noise only"),
        (Penalty.K3_LOSS, Kind.ELSEWHERE, "points elsewhere: forward KL, token-local"),
        (Penalty.ABS_LOSS, Kind.ELSEWHERE, "points elsewhere: total variation, token-local"),
        (Penalty.K3_REWARD, Kind.ELSEWHERE, "points elsewhere: reverse - forward KL"),
        (Penalty.K2_REWARD, Kind.ELSEWHERE, "points elsewhere: no divergence's gradient"),
    ],
)
def test_the_toy_of_one_token(penalty: Penalty, kind: Kind, words: str) -> None:
    found = verdict(penalty, TOY[penalty], TRUE, TRUE)
    assert found.kind is kind
    assert words in found.text


def test_the_binary_toy_shows_k3_in_the_reward_pushing_away() -> None:
    # p = (.8, .2), reference (.5, .5): d k3-reward / dp has the other sign (kl-reference.md §1.2).
    found = verdict(Penalty.K3_REWARD, [-0.0776], [0.2218], [0.2218])
    assert found == Verdict(Kind.AWAY, "pushes away from the reference")


def test_a_token_local_penalty_says_what_it_misses() -> None:
    found = verdict(Penalty.K2_LOSS, [0.8, 0.0], [0.8, 0.6], [0.8, 0.0])
    assert found == Verdict(Kind.LOCAL, "token-local: misses 60 % of the sequence gradient here")


def test_measurement_beats_theory() -> None:
    # k1 in the reward with a length-mean credit, say, has no sequence gradient whatever its name.
    found = verdict(Penalty.K1_REWARD, [0.8, 0.0], [0.8, 0.6], [0.8, 0.0])
    assert found.kind is Kind.LOCAL
    found = verdict(Penalty.K2_LOSS, [0.8, 0.6], [0.8, 0.6], [0.8, 0.0])
    assert found.kind is Kind.FULL
    found = verdict(Penalty.K1_REWARD, [0.0, 2.0], [0.8, 0.6], [0.8, 0.0])
    assert found.kind is Kind.ELSEWHERE


def test_the_right_direction_with_the_wrong_length_is_not_the_same() -> None:
    found = verdict(Penalty.K1_REWARD, [1.6, 1.2], [0.8, 0.6], [0.8, 0.0])
    assert found.kind is Kind.ELSEWHERE


def sampled(cosine: float, ratio: float, distance: float, se: float) -> Alignment:
    return Alignment(
        Estimate(cosine, se), Estimate(ratio, se), ratio + 2 * se, Estimate(distance, se)
    )


def test_no_clear_difference_is_a_verdict_only_where_a_large_one_would_have_shown() -> None:
    sharp, dull = sampled(0.97, 1.0, 0.05, 0.03), sampled(0.8, 1.1, 0.3, 0.4)
    elsewhere = sampled(0.5, 1.0, 1.0, 0.05)
    found = judge(Penalty.K1_REWARD, sharp, elsewhere, GAP)
    assert (found.kind, found.text) == (
        Kind.FULL,
        "the sequence KL's gradient, as good as exact (difference below 33 %)",
    )
    found = judge(Penalty.K1_REWARD, dull, elsewhere, GAP)
    assert found.kind is Kind.UNKNOWN
    assert found.text.startswith("not told from the sequence gradient here (difference below 105 %")


def test_what_theory_calls_another_gradient_needs_a_sharper_proof_that_it_is_not() -> None:
    sharp, dull = sampled(1.0, 1.0, 0.002, 0.002), sampled(0.97, 1.0, 0.05, 0.03)
    found = judge(Penalty.K3_LOSS, dull, dull, GAP)
    assert found == Verdict(
        Kind.UNKNOWN,
        "not told from the sequence gradient here (difference below 33 %); in theory forward KL, "
        "token-local",
    )
    assert judge(Penalty.K3_LOSS, sharp, sharp, GAP).kind is Kind.FULL


def test_a_cosine_that_is_below_zero_by_chance_is_no_accusation() -> None:
    vague, sharp = sampled(-0.2, 0.5, 1.4, 0.3), sampled(-0.2, 0.5, 1.4, 0.05)
    found = judge(Penalty.K1_REWARD, vague, vague, GAP)
    assert found.kind is Kind.ELSEWHERE
    assert "not the reverse KL of the whole sequence of theory" in found.text
    assert judge(Penalty.K3_REWARD, sharp, sharp, GAP).kind is Kind.AWAY


def test_without_a_reference_gradient_nothing_is_said() -> None:
    nothing = Alignment(None, None, None, None)
    found = judge(Penalty.K2_LOSS, nothing, nothing, GAP)
    assert found.kind is Kind.UNKNOWN
    assert "not clearly above 0" in found.text


def test_noise_names_how_long_it_can_be_at_most() -> None:
    noise = Alignment(None, None, 0.12, Estimate(1.0, 0.1))
    found = judge(Penalty.K1_LOSS, noise, noise, GAP)
    assert found == Verdict(Kind.NOISE, "no pull: noise only (below 12 % of the sequence gradient)")


def test_where_both_references_fit_theory_decides_and_else_the_nearer() -> None:
    near, far = sampled(0.99, 1.0, 0.01, 0.02), sampled(0.99, 1.0, 0.02, 0.02)
    assert judge(Penalty.K1_REWARD, far, near, GAP).kind is Kind.FULL
    assert judge(Penalty.K2_LOSS, near, far, GAP).kind is Kind.LOCAL
    near, far = sampled(1.0, 1.0, 0.0, 0.002), sampled(1.0, 1.0, 0.001, 0.002)
    assert judge(Penalty.K3_LOSS, near, far, GAP).kind is Kind.FULL
    assert judge(Penalty.K3_LOSS, far, near, GAP).kind is Kind.LOCAL


def test_a_gradient_that_could_still_be_long_is_not_called_noise() -> None:
    vague = Alignment(None, None, 0.51, Estimate(1.0, 0.1))
    found = judge(Penalty.K2_REWARD, vague, vague, GAP)
    assert found.kind is Kind.UNKNOWN
    assert "can't be told with these samples: not clearly above 0, below 51 %" in found.text


def test_what_a_noisy_token_local_penalty_misses_is_told_by_the_exact_one() -> None:
    near, far = sampled(0.99, 1.0, 0.01, 0.03), sampled(0.97, 1.0, 0.05, 0.04)
    told = "token-local part (misses 30 % of the sequence gradient here)"
    assert told in judge(Penalty.K2_LOSS, far, near, GAP).text
    apart = sampled(0.9, 1.0, 0.2, 0.02)
    found = judge(Penalty.K2_LOSS, apart, near, GAP)
    assert found.text == "token-local: misses 30 % of the sequence gradient here"


ALIKE_REFERENCES = Alignment(Estimate(1.0, 0.01), Estimate(1.0, 0.01), 1.02, Estimate(0.001, 0.005))
EITHER = "the sequence KL's gradient or its token-local part: not told apart here; in theory: "


def test_where_the_references_are_not_told_apart_the_verdict_does_not_contradict_theory() -> None:
    # Field tour: k1-reward, cosines .97 +- .05 and .99 +- .04, was called token-local.
    blurred, sharp = sampled(0.97, 1.0, 0.06, 0.12), sampled(0.99, 1.0, 0.02, 0.08)
    found = judge(Penalty.K1_REWARD, blurred, sharp, ALIKE_REFERENCES)
    assert found == Verdict(Kind.UNKNOWN, EITHER + "the whole sequence's")
    found = judge(Penalty.K1_REWARD, sharp, sharp, ALIKE_REFERENCES)
    assert found == Verdict(Kind.FULL, EITHER + "the whole sequence's")
    misses = " (misses less than 10 % of the sequence gradient here)"
    found = judge(Penalty.K2_LOSS, sharp, blurred, ALIKE_REFERENCES)
    assert found == Verdict(Kind.UNKNOWN, EITHER + "the token-local part" + misses)
    found = judge(Penalty.K2_LOSS, sharp, sharp, ALIKE_REFERENCES)
    assert found == Verdict(Kind.LOCAL, EITHER + "the token-local part" + misses)


def test_another_divergence_that_fits_both_references_keeps_its_theory_beside_it() -> None:
    near, far = sampled(1.0, 1.0, 0.0, 0.002), sampled(1.0, 1.0, 0.001, 0.002)
    for full, local in ((near, far), (far, near)):
        text = judge(Penalty.K3_LOSS, full, local, ALIKE_REFERENCES).text
        assert text == EITHER + "forward KL, token-local"


def test_what_is_a_reference_by_construction_is_told_from_the_other() -> None:
    same, near = sampled(1.0, 1.0, 0.0, 0.0), sampled(1.0, 1.0, 0.001, 0.005)
    found = judge(Penalty.EXACT_FULL, same, near, ALIKE_REFERENCES)
    assert found == Verdict(Kind.FULL, "the sequence KL's gradient, as good as exact")
    found = judge(Penalty.EXACT_LOSS, near, same, ALIKE_REFERENCES)
    told = "token-local: misses less than 10 % of the sequence gradient here"
    assert found == Verdict(Kind.LOCAL, told)
