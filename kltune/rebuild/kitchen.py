"""Makes the kitchen task's weights from a seed: tokenizer, a base of one of three sizes, learned reward.

One step per function, in order: words -> tokenizer, grammar -> base (supervised), base ->
samples -> gold -> comparisons -> reward. Minutes on one CPU core; the reward comes from the
medium base, and all sizes are judged by it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from kltune.rewards.comparisons import Comparison, labelled, noisy_labels
from kltune.rewards.learned import FitSettings, LearnedReward, fit_learned_reward
from kltune.tasks.kitchen import grammar, task
from kltune.tasks.kitchen.foods import FOODS
from kltune.tasks.kitchen.gold import KitchenGold
from kltune.tasks.protocol import Prompt, Sample

_LOG = logging.getLogger(__name__)
_PAD, _EOS, _UNKNOWN = "<pad>", "<eos>", "<unk>"
_IGNORED: Final = -100


@dataclass(frozen=True, slots=True)
class Recipe:
    """All numbers that shape the shipped weights."""

    hidden: int = 96
    feed_forward: int = 256
    layers: int = 3
    heads: int = 4
    sft_steps: int = 800
    sft_batch: int = 96
    sft_learning_rate: float = 2e-3
    comparisons: int = 3000
    """Pairs sampled from the base on train prompts; ties are dropped from them."""
    label_noise: float = 0.2
    reward: FitSettings = field(default_factory=lambda: FitSettings(steps=150))


RECIPES: Final[Mapping[task.Size, Recipe]] = MappingProxyType(
    {
        "small": Recipe(hidden=48, feed_forward=128, sft_learning_rate=4e-3),
        "medium": Recipe(),
        "large": Recipe(hidden=192, feed_forward=512, sft_learning_rate=1e-3),
    }
)
"""Width alone differs (twice, so about four times the parameters), and the step size with it."""


def rebuild(
    folder: Path = task.WEIGHTS,
    seed: int = 0,
    size: task.Size = "medium",
    recipe: Recipe | None = None,
) -> None:
    """Write a size's base into ``folder``, with the medium one ``folder/reward`` too.

    The same seed gives the same weights. Without ``recipe``: that of the size.
    """
    recipe = RECIPES[size] if recipe is None else recipe
    tokenizer = build_tokenizer()
    base = train_base(tokenizer, recipe, seed)
    base_folder = folder / task.FOLDERS[size]
    base.save_pretrained(base_folder)
    tokenizer.save_pretrained(base_folder)
    _let_all_read(base_folder)
    if size != "medium":
        return
    reward = train_reward(base, tokenizer, recipe, seed)
    reward.save(folder / "reward")
    _let_all_read(folder / "reward")
    _LOG.info("reward: held-out accuracy %.3f", reward.facts.held_out_accuracy)


def _let_all_read(folder: Path) -> None:
    """Weights are written for their owner alone, by way of a temporary file; these ship with the package."""
    for path in folder.iterdir():
        if path.is_file():
            path.chmod(0o644)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word, number and punctuation mark of the task."""
    words = sorted({word for text in _all_texts() for word in _split(text)})
    vocabulary = {word: i for i, word in enumerate([_PAD, _EOS, _UNKNOWN, *words])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
    core.pre_tokenizer = _pre_tokenizer()
    # The cleanup of this decoder draws punctuation to the word before it.
    core.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=_PAD,
        eos_token=_EOS,
        unk_token=_UNKNOWN,
        padding_side="left",
        model_max_length=128,
        clean_up_tokenization_spaces=False,
    )


def train_base(tokenizer: PreTrainedTokenizerFast, recipe: Recipe, seed: int) -> LlamaForCausalLM:
    """Fine-tune a fresh Llama on answers of the grammar about all foods, of every split.

    The base has read about all foods; what no split shares is the food that RL was rewarded on.
    """
    rng = random.Random(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(_config(tokenizer, recipe))
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.sft_learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.sft_learning_rate, total_steps=recipe.sft_steps
    )
    for step in range(recipe.sft_steps):
        ids_BT, mask_BT, labels_BT = _sft_batch(tokenizer, rng, recipe.sft_batch)
        loss = model(input_ids=ids_BT, attention_mask=mask_BT, labels=labels_BT).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            _LOG.info("supervised step %d of %d: loss %.3f", step, recipe.sft_steps, loss.item())
    return model.eval()


def train_reward(
    base: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, seed: int
) -> LearnedReward:
    """Sample pairs from the base, let gold label them with noise, fit a reward model."""
    comparisons = compare(base, tokenizer, recipe, seed)
    return fit_learned_reward(base, comparisons, recipe.label_noise, recipe.reward, seed)


def compare(
    base: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, seed: int
) -> list[Comparison]:
    """Make noisy comparisons of two base answers to the same train prompt."""
    rng = random.Random(seed)
    train = task.splits().train
    prompts = [rng.choice(train) for _ in range(recipe.comparisons)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        a = sample(base, tokenizer, prompts)
        b = sample(base, tokenizer, prompts)
    gold = KitchenGold()
    labels = noisy_labels(gold(a), gold(b), recipe.label_noise, seed)
    pairs = [
        (tuple(tokenizer(x.prompt.text).input_ids), x.token_ids, y.token_ids)
        for x, y in zip(a, b, strict=True)
    ]
    return labelled(pairs, labels)


@torch.no_grad()
def sample(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[Prompt],
    batch_size: int = 500,
) -> list[Sample]:
    """Draw one completion per prompt from the plain distribution (temperature 1, nothing cut)."""
    samples: list[Sample] = []
    for start in range(0, len(prompts), batch_size):
        part = prompts[start : start + batch_size]
        encoded = tokenizer([p.text for p in part], padding=True, return_tensors="pt")
        # Its stub demands a protocol that its own model classes don't meet.
        generate: Callable[..., Tensor] = model.generate  # pyright: ignore[reportAttributeAccessIssue]
        tokens = generate(
            input_ids=encoded.input_ids,
            attention_mask=encoded.attention_mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=task.MAX_NEW_TOKENS,
        )
        for prompt, row in zip(part, tokens[:, encoded.input_ids.shape[1] :].tolist(), strict=True):
            samples.append(_to_sample(tokenizer, prompt, row))
    return samples


def _to_sample(tokenizer: PreTrainedTokenizerFast, prompt: Prompt, row: list[int]) -> Sample:
    _, eos = _special_ids(tokenizer)
    ended = eos in row
    valid = row[: row.index(eos) + 1] if ended else row
    text = str(tokenizer.decode(valid, skip_special_tokens=True))
    return Sample(prompt=prompt, text=text, token_ids=tuple(valid), ended=ended)


def _config(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> LlamaConfig:
    pad, eos = _special_ids(tokenizer)
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=recipe.feed_forward,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.05,
        pad_token_id=pad,
        eos_token_id=eos,
        bos_token_id=None,
    )


def _special_ids(tokenizer: PreTrainedTokenizerFast) -> tuple[int, int]:
    """Ids of the padding and the end token."""
    vocabulary = tokenizer.get_vocab()
    return vocabulary[_PAD], vocabulary[_EOS]


def _sft_batch(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, attention mask and labels, padded to the right (no generation happens here)."""
    pad, eos = _special_ids(tokenizer)
    rows: list[tuple[list[int], int]] = []
    for _ in range(size):
        food = rng.choice(FOODS)
        prompt = tokenizer(grammar.question(food, rng.randrange(len(grammar.QUESTIONS)))).input_ids
        completion = [*tokenizer(grammar.answer(food, rng)).input_ids, eos]
        rows.append((prompt + completion[: task.MAX_NEW_TOKENS], len(prompt)))
    width = max(len(ids) for ids, _ in rows)
    ids_BT = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows])
    mask_BT = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows])
    labels_BT = ids_BT.where(mask_BT.bool(), _IGNORED)
    for row, (_, prompt_length) in enumerate(rows):
        labels_BT[row, :prompt_length] = _IGNORED
    return ids_BT, mask_BT, labels_BT


def _all_texts() -> Iterator[str]:
    for food in FOODS:
        yield from (grammar.question(food, wording) for wording in range(len(grammar.QUESTIONS)))
        yield from (grammar.time_sentence(food, wording) for wording in range(len(grammar.TIMES)))
        yield from (filler.format(food=food.name) for filler in grammar.FILLER)
    yield from (*grammar.TIPS, *grammar.VAGUE, *grammar.BOASTS)


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(behavior="isolated")]
    )


def _split(text: str) -> list[str]:
    return [word for word, _ in _pre_tokenizer().pre_tokenize_str(text)]
