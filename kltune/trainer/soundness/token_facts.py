"""What the probes of tokenizer, stop and pad ids find, as plain numbers without a verdict. No torch here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """Tokenizer against model and reward model; how prompts are encoded."""

    num_prompts: int
    """Prompts that were looked at, evenly spread over train and select."""
    tokenizer_size: int
    """Ids that the tokenizer knows, added ones included."""
    highest_id: int
    """Largest id that the tokenizer can give; must be below both of the next."""
    embedding_rows: int
    """Ids that the model can read."""
    model_vocabulary: int
    """Logits per position."""
    reward_rows: int | None
    """Ids that a learned reward's trunk can read; none where the proxy reads text."""
    reward_special_ids_agree: bool | None
    """Whether the trunk's config names the same beginning, end and padding ids as the model's (where both do)."""
    reward_ids_agree: bool | None
    """Whether a learned reward encodes every prompt to the very ids that the policy reads."""
    bos_id: int | None
    """Of the tokenizer."""
    adds_bos: bool
    """Whether the tokenizer begins a plain text with a BOS by itself."""
    bos_least: int
    """Fewest beginning-of-text ids at the beginning of an encoded prompt (one right after another)."""
    bos_most: int
    """Most of them; above 1 the template and the tokenizer both put one."""
    uses_template: bool
    template_least: int | None
    """Fewest times that a prompt holds the template's opening of the user's message; none without a template."""
    template_most: int | None
    """Most times; above 1 the text had been through a template before."""
    text_kept_frac: float
    """Share of prompts whose own text is found in what their ids decode to, but for white space."""
    unknown_frac: float
    """Share of prompt tokens that are the tokenizer's unknown token."""
    round_trip_frac: float
    """Share of completions whose text encodes to the very ids they were decoded from (stop tokens aside)."""
    text_nll_token: float
    """Mean -log p of the prompts' tokens under the model, nats per token."""
    relabelled_nll_token: float
    """The same of the same tokens with every ordinary id replaced by another at random: about what a model makes
    of a tokenizer that is not its own. (A base that learned answers alone knows prompts no better.)"""
    answer_entropy_token: float
    """Mean entropy of the start policy along its own completions, nats per token."""
    relabelled_entropy_token: float
    """The same after prompts relabelled in that way, mean over a few relabellings; no higher, and the prompts mean
    as little to the model as noise."""
    special_id_conflicts: tuple[str, ...]
    """Beginning, end and padding ids that tokenizer and model config both name, and not alike:
    ``eos_token_id: tokenizer 1, model 2``. Common, and harmless where both are stop ids."""
    relabelled_nll_std: float = 0.0
    """Standard deviation of the surprise at the prompts over the relabellings, nats per token."""
    template_copies: int | None = None
    """How often the template writes what the user says; 0: not at all, or not as it was said. None without one."""
    template_tells_apart: bool = True
    """Whether the template writes two different messages differently."""
    same_ids: int = 0
    """Select prompts that encode to the ids of a train prompt, though their words are others."""
    num_select: int = 0


@dataclass(frozen=True, slots=True)
class StopFacts:
    """What ends a completion and what fills it up."""

    pad_id: int
    pad_token: str
    has_own_pad: bool
    """Whether the tokenizer names a pad token; else a stop token stands in."""
    pad_is_stop: bool
    """Harmless: masks go by position."""
    pad_is_in_vocabulary: bool
    pad_in_text_frac: float
    """Share of tokens of encoded prompts that are the pad id; above 0 it is an ordinary token too."""
    stop_ids: tuple[int, ...]
    stop_tokens: tuple[str, ...]
    missing_stop_ids: tuple[int, ...]
    """Ids that tokenizer or generation config call an end, but at which the sampler does not stop."""
    stray_stop_ids: tuple[int, ...]
    """Ids at which the sampler stops, but that neither of them calls an end."""
    ended_frac: float
    """Share of the drawn completions that a stop token ended."""
    pad_is_special: bool = True
    """Whether the tokenizer counts the pad id among its special tokens; else it is a word that any text may hold."""
    prompts_ended_frac: float = 0.0
    """Share of encoded prompts whose last token is a stop token: to the model the text is over."""
    tokenizer_ends_texts: bool = False
    """Whether it is the tokenizer that ends every text so; else prompts or the template write it."""
