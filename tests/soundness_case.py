"""What the probes find on a set-up that is sound, to change one number of."""

from __future__ import annotations

from kltune.trainer.soundness.facts import (
    CountedSample,
    DropoutFacts,
    FixedPointFacts,
    MaskFacts,
    MemoryFacts,
    OracleFacts,
    PaddingFacts,
    ReferenceFacts,
    SamplerFacts,
    Soundness,
)
from kltune.trainer.soundness.score_facts import ScorePair, ScorerFacts, ScoringFacts
from kltune.trainer.soundness.token_facts import StopFacts, TokenFacts


def tokens() -> TokenFacts:
    return TokenFacts(
        num_prompts=16, tokenizer_size=30, highest_id=29, embedding_rows=32, model_vocabulary=32,
        reward_rows=32, reward_special_ids_agree=True, reward_ids_agree=True, bos_id=2, adds_bos=True,
        bos_least=1, bos_most=1, uses_template=True, template_least=1, template_most=1,
        text_kept_frac=1.0, unknown_frac=0.0, round_trip_frac=0.9, text_nll_token=2.0,
        relabelled_nll_token=9.0, answer_entropy_token=1.0, relabelled_entropy_token=3.0,
        special_id_conflicts=(),
    )  # fmt: skip


def stops() -> StopFacts:
    return StopFacts(
        pad_id=0, pad_token="<pad>", has_own_pad=True, pad_is_stop=False, pad_is_in_vocabulary=True,
        pad_in_text_frac=0.0, stop_ids=(1,), stop_tokens=("<eos>",), missing_stop_ids=(),
        stray_stop_ids=(), ended_frac=0.8,
    )  # fmt: skip


def padding() -> PaddingFacts:
    return PaddingFacts(200, 1e-6, 1e-6, 2e-6, 1e-6, 1e-6, 1e-6)


def reference() -> ReferenceFacts:
    return ReferenceFacts(
        num_tokens=200, exact_kl_token=0.0, exact_kl_seq=0.0, k1_token=0.0, k3_token=0.0,
        largest_gap=0.0, floor_kl_token=1e-12, floor_gap=1e-6, precision="fp32",
    )  # fmt: skip


def fixed_point() -> FixedPointFacts:
    return FixedPointFacts(
        weights_kept_at_zero=True, changed_at_zero=0, learning_rate=1e-3, weights_moved=True,
        changed_frac=0.9, largest_change=1e-3, reference_kept=True, reference_logprobs_kept=True,
        shares_storage=False, grad_norm=0.4, zero_group_frac=0.0, kl_after_token=1e-3,
    )  # fmt: skip


def sampler() -> SamplerFacts:
    return SamplerFacts(200, 2e-6, 1e-8, 3e-6, 1e-8)


def oracle() -> OracleFacts:
    return OracleFacts(
        num_completions=16, num_tokens=120, policy_gap=2e-6, reference_gap=2e-6, temperature=1.0,
        fitted_temperature=None, fitted_gap=None, best_shift=None, shift_gap=None, mean_gap=1e-7,
        cause="none",
    )  # fmt: skip


def dropout() -> DropoutFacts:
    return DropoutFacts((), 0, (), 0, 0.0, 0.0, True)


def masks() -> MaskFacts:
    sample = CountedSample(7, 5, 5, True, 5, True, "a b c")
    return MaskFacts(
        samples=(sample, sample, sample), by_hand=600, by_mask=600, by_lengths=600, scored=600,
        weighted=0.0, wrong_rows=0, wrong_ends=0, longest=16, limit=16,
        prompt_tail_frac=0.1, step_by_hand=300, step_metric=300.0,
    )  # fmt: skip


def memory() -> MemoryFacts:
    return MemoryFacts(
        4, 10 * 2**20, 20 * 2**20, 30 * 2**20, 28 * 2**20, 25 * 2**20, 90 * 2**20, 8 * 2**30
    )


def scorer(field: str = "task.proxy", name: str = "proxy") -> ScorerFacts:
    return ScorerFacts(
        field=field, name=name, num_samples=64, unscored_frac=0.0, fault=None, mean=0.2, std=0.6,
        group_std=0.5, constant_group_frac=0.1, distinct=40, repeats=True, repeat_gap=0.0,
        seconds_per_call=0.01,
    )  # fmt: skip


def scoring() -> ScoringFacts:
    pair = ScorePair("task.proxy", "task.gold", 64, 0.1, 0.6, 0.5)
    return ScoringFacts(scorer(), (scorer("task.gold", "gold"),), (pair,))


def sound() -> Soundness:
    return Soundness(
        tokens(), stops(), padding(), reference(), fixed_point(), sampler(), oracle(), dropout(),
        masks(), memory(), scoring(),
    )  # fmt: skip
