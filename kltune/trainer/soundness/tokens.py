"""Tokenizer, model and encoded prompts in, whether they belong together out; so for stop and pad ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from kltune.errors import SpecError
from kltune.spec.model import ModelSpec
from kltune.tasks.protocol import Prompt, Scorer
from kltune.trainer.bank import Bank
from kltune.trainer.data import EncodedPrompts, TaskData, spread_evenly
from kltune.trainer.encode import chat_text
from kltune.trainer.logprobs import Logprobs
from kltune.trainer.model import LoadedModel
from kltune.trainer.reduce import token_mean
from kltune.trainer.soundness.drawn import Drawn, draw_after, trainer_logprobs
from kltune.trainer.soundness.token_facts import StopFacts, TokenFacts

NUM_PROMPTS = 64
"""Prompts of each split whose ids are looked at."""

NUM_READ = 8
"""Prompts that the model reads."""

NUM_NOISES = 4
"""Relabellings of the vocabulary that the real one is held against, by the answers."""

NUM_NOISES_READ = 8
"""The same by the surprise at the prompts, which costs no completions; their spread is the noise of it."""

_MARK = "kltune-sentinel"
"""Stands for a user's message in a template."""

_MARKS = (_MARK, "another-of-kltune")
"""Two that differ from the first letter on."""

_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


def token_facts(bank: Bank, model: ModelSpec, drawn: Drawn, found: Logprobs) -> TokenFacts:
    """Look at the tokenizer of ``bank`` and the prompts as it encodes them; ``found``: the trainer's numbers at ``drawn``."""
    loaded, data = bank.parts.loaded, bank.parts.data
    tokenizer: Any = loaded.tokenizer
    prompts, rows = _some_prompts(data)
    uses_template = model.chat != "never" and getattr(tokenizer, "chat_template", None) is not None
    runs = [_leading(row, tokenizer.bos_token_id) for row in rows]
    openings = _openings(tokenizer, model, rows) if uses_template else []
    written = [chat_text(tokenizer, mark, model.system) for mark in _MARKS] if uses_template else []
    bos = tokenizer.bos_token_id
    read = _read(data.train)
    noise = _noise_entropies(bank, read)
    noise_nlls = [_nll(bank, _relabelled(loaded, read, seed)) for seed in range(NUM_NOISES_READ)]
    trunk = _trunk(data.proxy)
    return TokenFacts(
        num_prompts=len(rows),
        tokenizer_size=len(tokenizer),
        highest_id=max(tokenizer.get_vocab().values()),
        embedding_rows=_embedding_rows(loaded.model),
        model_vocabulary=loaded.vocabulary,
        reward_rows=None if trunk is None else _embedding_rows(trunk),
        reward_special_ids_agree=None if trunk is None else _special_ids_agree(trunk, loaded),
        reward_ids_agree=_reward_ids_agree(data.proxy, prompts, rows),
        bos_id=bos,
        adds_bos=bos is not None and _leading(tokenizer.encode("a"), bos) > 0,
        bos_least=min(runs),
        bos_most=max(runs),
        uses_template=uses_template,
        template_least=min(openings, default=None),
        template_most=max(openings, default=None),
        text_kept_frac=_share(
            _squeezed(prompt.text) in _squeezed(tokenizer.decode(list(row)))
            for prompt, row in zip(prompts, rows, strict=True)
        ),
        unknown_frac=_share(i == _unknown_id(tokenizer) for row in rows for i in row),
        round_trip_frac=_share(
            _comes_back(tokenizer, sample.token_ids, loaded.stop_ids) for sample in drawn.samples
        ),
        text_nll_token=_nll(bank, read),
        relabelled_nll_token=fmean(noise_nlls),
        answer_entropy_token=_entropy(found, drawn),
        relabelled_entropy_token=fmean(noise),
        special_id_conflicts=_conflicts(tokenizer, loaded.model.config),
        relabelled_nll_std=float(np.std(noise_nlls, ddof=1)),
        template_copies=written[0].casefold().count(_MARK) if written else None,
        template_tells_apart=len(set(written)) == len(written),
        same_ids=data.same_ids(),
        num_select=len(data.select),
    )


def refuse_unreadable(bank: Bank) -> None:
    """See to it that the model can read the prompts at all, before anything else is asked.

    Raises:
        SpecError: a prompt holds an id that the model's embedding has no row for.
    """
    data, rows = bank.parts.data, _embedding_rows(bank.parts.loaded.model)
    for part in (data.train, data.select):
        for prompt, ids in zip(part.prompts, part.ids, strict=True):
            if max(ids) >= rows:
                raise SpecError(
                    f"model.base: the tokenizer gives id {max(ids)} for prompt {prompt.id!r}, but the model "
                    f"reads {rows} ids (0 to {rows - 1}); give the tokenizer that the model was trained with"
                )


def stop_facts(bank: Bank, drawn: Drawn) -> StopFacts:
    """Look at what ends a completion and what fills it up."""
    loaded = bank.parts.loaded
    tokenizer: Any = loaded.tokenizer
    _, rows = _some_prompts(bank.parts.data)
    named = _named_stop_ids(loaded)
    return StopFacts(
        pad_id=loaded.pad_id,
        pad_token=_token(tokenizer, loaded.pad_id),
        has_own_pad=tokenizer.pad_token_id is not None,
        pad_is_stop=loaded.pad_id in loaded.stop_ids,
        pad_is_in_vocabulary=0
        <= loaded.pad_id
        < min(loaded.vocabulary, _embedding_rows(loaded.model)),
        pad_in_text_frac=_share(i == loaded.pad_id for row in rows for i in row),
        stop_ids=loaded.stop_ids,
        stop_tokens=tuple(_token(tokenizer, i) for i in loaded.stop_ids),
        missing_stop_ids=tuple(sorted(named - set(loaded.stop_ids))),
        stray_stop_ids=tuple(sorted(set(loaded.stop_ids) - named)),
        ended_frac=_share(sample.ended for sample in drawn.samples),
        pad_is_special=loaded.pad_id in tokenizer.all_special_ids,
        prompts_ended_frac=_share(row[-1] in loaded.stop_ids for row in rows),
        tokenizer_ends_texts=any(i in loaded.stop_ids for i in tokenizer.encode("a")[-1:]),
    )


def _some_prompts(data: TaskData) -> tuple[list[Prompt], list[tuple[int, ...]]]:
    prompts: list[Prompt] = []
    rows: list[tuple[int, ...]] = []
    for part in (data.train, data.select):
        indices = spread_evenly(len(part), NUM_PROMPTS)
        prompts += [part.prompts[i] for i in indices]
        rows += [part.ids[i] for i in indices]
    return prompts, rows


def _read(part: EncodedPrompts) -> list[tuple[int, ...]]:
    return [part.ids[i] for i in spread_evenly(len(part), NUM_READ)]


def _leading(row: Sequence[int], wanted: int | None) -> int:
    """How often ``wanted`` stands at the beginning, one right after another."""
    count = 0
    while wanted is not None and count < len(row) and row[count] == wanted:
        count += 1
    return count


def _openings(tokenizer: Any, model: ModelSpec, rows: Sequence[Sequence[int]]) -> list[int]:
    """How often each prompt went through the template: the marker before the user's message is counted."""
    text = chat_text(tokenizer, _MARK, model.system)
    before = text.partition(_MARK)[0]
    # From the last special token on, since a default system message may come before; some templates have none.
    start = max((before.rfind(token) for token in tokenizer.all_special_tokens), default=-1)
    marker = before[max(0, start) :].strip()
    if not marker:
        return []
    once = text.count(marker)
    return [tokenizer.decode(list(row)).count(marker) - once + 1 for row in rows]


def _unknown_id(tokenizer: Any) -> int | None:
    """None where unknown text is given the id of beginning or end, which a prompt may well hold."""
    unknown: int | None = tokenizer.unk_token_id
    return None if unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id) else unknown


def _comes_back(tokenizer: Any, ids: Sequence[int], stop_ids: Sequence[int]) -> bool:
    kept = [i for i in ids if i not in stop_ids]
    again = tokenizer.encode(
        tokenizer.decode(kept, clean_up_tokenization_spaces=False), add_special_tokens=False
    )
    return list(again) == kept


def _relabelled(
    loaded: LoadedModel, rows: Sequence[Sequence[int]], seed: int
) -> list[tuple[int, ...]]:
    """Every ordinary id replaced by another at random, in every row alike; special ids stay."""
    size = min(len(loaded.tokenizer), loaded.vocabulary)
    special = {int(i) for i in loaded.tokenizer.all_special_ids}
    ordinary = np.array([i for i in range(size) if i not in special])
    exchanged = np.arange(size)
    exchanged[ordinary] = np.random.default_rng(seed).permutation(ordinary)
    return [tuple(int(exchanged[i]) if i < size else i for i in row) for row in rows]


@torch.no_grad()
def _nll(bank: Bank, rows: Sequence[Sequence[int]]) -> float:
    """Mean -log p per token of texts under the reference; NaN where none has two tokens."""
    loaded = bank.parts.loaded
    total, count = 0.0, 0
    for row in rows:
        if len(row) < 2 or max(row) >= loaded.vocabulary:
            continue
        read = torch.tensor([list(row)], device=loaded.device)
        with bank.parts.stack.use(None), loaded.accelerator.autocast():
            logits = loaded.model(input_ids=read).logits[0, :-1]
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        total -= float(logprobs.gather(1, read[0, 1:, None]).sum())
        count += len(row) - 1
    return total / count if count else math.nan


def _entropy(found: Logprobs, drawn: Drawn) -> float:
    return float(token_mean(found.entropy_KNT[0], drawn.rollout.mask_KNT[0]))


def _noise_entropies(bank: Bank, rows: Sequence[Sequence[int]]) -> list[float]:
    """Of each relabelling: along one completion of each of the rows relabelled by it."""
    loaded = bank.parts.loaded
    prompts = [row for seed in range(NUM_NOISES) for row in _relabelled(loaded, rows, seed)]
    answered = draw_after(bank, prompts)
    found = trainer_logprobs(bank, answered)
    blocks = zip(
        found.entropy_KNT[0].chunk(NUM_NOISES), answered.mask_KNT[0].chunk(NUM_NOISES), strict=True
    )
    return [float(token_mean(entropy_NT, mask_NT)) for entropy_NT, mask_NT in blocks]


def _conflicts(tokenizer: Any, config: Any) -> tuple[str, ...]:
    found: list[str] = []
    for name in _SPECIAL:
        own: Any = getattr(tokenizer, name, None)
        theirs: Any = getattr(config, name, None)
        known: Any = theirs if isinstance(theirs, list) else [theirs]
        if own is not None and theirs is not None and own not in known:
            found.append(f"{name}: tokenizer {own}, model {theirs}")
    return tuple(found)


def _named_stop_ids(loaded: LoadedModel) -> set[int]:
    """Every id that tokenizer, model or generation config calls an end."""
    named: set[int] = set(loaded.text_rules.stop_ids)
    owners: tuple[Any, ...] = (
        loaded.tokenizer,
        loaded.model.config,
        getattr(loaded.model, "generation_config", None),
    )
    for owner in owners:
        value: Any = getattr(owner, "eos_token_id", None)
        if value is not None:
            named.update(int(i) for i in (value if isinstance(value, list | tuple) else [value]))
    return named


def _trunk(proxy: Scorer) -> nn.Module | None:
    """The language model under a learned reward."""
    found = getattr(proxy, "trunk", None)
    return found if isinstance(found, nn.Module) else None


def _embedding_rows(model: Any) -> int:
    return model.get_input_embeddings().weight.shape[0]


def _special_ids_agree(trunk: Any, loaded: LoadedModel) -> bool:
    ours: Any = loaded.model.config
    pairs = [(getattr(trunk.config, n, None), getattr(ours, n, None)) for n in _SPECIAL]
    return all(theirs == own for theirs, own in pairs if theirs is not None and own is not None)


def _reward_ids_agree(
    proxy: Scorer, prompts: Sequence[Prompt], rows: Sequence[tuple[int, ...]]
) -> bool | None:
    encode: Callable[[Prompt], Sequence[int]] | None = getattr(proxy, "encode_prompt", None)
    if encode is None:
        return None
    return all(tuple(encode(prompt)) == row for prompt, row in zip(prompts, rows, strict=True))


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0


def _token(tokenizer: Any, token_id: int) -> str:
    found = tokenizer.convert_ids_to_tokens(token_id)
    return "" if found is None else str(found)
