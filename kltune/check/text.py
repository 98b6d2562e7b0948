"""What the probes found of tokens in; whether model, tokenizer and reward model read the same text out, as lines."""

from __future__ import annotations

import math

from kltune.check import thresholds as limit
from kltune.check.result import Line
from kltune.grade import Grade
from kltune.trainer.soundness.token_facts import StopFacts, TokenFacts
from kltune.trial.words import number


def token_lines(
    tokens: TokenFacts, stops: StopFacts, *, only_certain: bool = False
) -> tuple[Line, ...]:
    """Tokenizer, vocabulary, BOS, chat template, stop and pad ids.

    ``only_certain``: what the model makes of the text is no failure, since a weak model makes little of any.
    """
    return (
        tokenizer_line(tokens, only_certain=only_certain),
        vocabulary_line(tokens),
        bos_line(tokens),
        template_line(tokens),
        stop_line(stops),
        pad_line(stops),
    )


def tokenizer_line(found: TokenFacts, *, only_certain: bool = False) -> Line:
    """Whether the model knows the language of the tokenizer, and the reward model reads the same ids."""
    by_text = _share(found.text_nll_token, found.relabelled_nll_token)
    by_answers = _share(found.answer_entropy_token, found.relabelled_entropy_token)
    told = [share for share in (by_text, by_answers) if share is not None]
    numbers = {
        "text_nll_token": found.text_nll_token,
        "relabelled_nll_token": found.relabelled_nll_token,
        "answer_entropy_token": found.answer_entropy_token,
        "relabelled_entropy_token": found.relabelled_entropy_token,
        "least_share": min(told, default=None),
        "text_kept_frac": found.text_kept_frac,
        "unknown_frac": found.unknown_frac,
        "round_trip_frac": found.round_trip_frac,
        "num_conflicts": float(len(found.special_id_conflicts)),
    }
    shown = (
        f"its surprise at the prompts is {number(found.text_nll_token)} nats/token and its answers' entropy "
        f"{number(found.answer_entropy_token)}, with the ids mixed up {number(found.relabelled_nll_token)} and "
        f"{number(found.relabelled_entropy_token)}"
    )
    grade, said, remedy = Grade.PASS, f"The model reads this text: {shown}.", ""
    if found.unknown_frac > limit.UNKNOWN_FAIL:
        grade = Grade.FAIL
        said = (
            f"{100 * found.unknown_frac:.0f} % of the prompts' tokens are unknown to the tokenizer."
        )
        remedy = (
            "The model can't read them: give prompts in its language, or a model that knows theirs."
        )
    elif not told:
        grade = Grade.WARN
        said = "Whether the model knows this text can't be told: no prompt has two tokens that it can read."
        remedy = "Look at the prompts."
    elif min(told) > limit.TOKENIZER_WARN:
        is_noise = min(told) > limit.TOKENIZER_FAIL and not only_certain
        grade = Grade.FAIL if is_noise else Grade.WARN
        said = f"To the model this text is hardly better than noise: {shown}."
        remedy = "Give the tokenizer that the model was trained with; or the model is a weak one, or never saw such prompts."
    elif _is_surprised(found):
        grade = Grade.WARN
        said = (
            f"The model expects these prompts less than noise: {shown} (standard deviation over mixings "
            f"{number(found.relabelled_nll_std)})."
        )
        remedy = "Is this the tokenizer that the model was trained with? Its ids may stand for other words."
    elif found.unknown_frac > limit.UNKNOWN_WARN or found.text_kept_frac < 1:
        grade = Grade.WARN
        said = (
            f"{100 * found.unknown_frac:.1f} % of the prompts' tokens are unknown to the tokenizer, and "
            f"{100 * found.text_kept_frac:.0f} % of the prompts come back whole from their ids."
        )
        remedy = "Write the prompts in characters that the tokenizer has."
    if found.reward_special_ids_agree is False or found.reward_ids_agree is False:
        grade = Grade.FAIL
        what = (
            "other ids for the prompts"
            if found.reward_ids_agree is False
            else "other ids for beginning, end or padding"
        )
        said = f"The reward model has {what} than the policy."
        remedy = "Give a reward model of the policy's tokenizer, or one that reads text."
    elif found.special_id_conflicts:
        said += f" Tokenizer and config name other ids ({', '.join(found.special_id_conflicts)}), all in force."
    title = "model, reference and reward model share the tokenizer"
    return Line("tokenizer", title, grade, said, remedy, numbers)


def _is_surprised(found: TokenFacts) -> bool:
    """Whether the prompts are less likely to the model than the same with the ids mixed up, beyond noise."""
    excess = found.text_nll_token - found.relabelled_nll_token
    return excess > limit.SURPRISE_WARN * found.relabelled_nll_std > 0


def _share(own: float, mixed: float) -> float | None:
    """How near the model is to what it makes of noise; none where that can't be told."""
    return own / mixed if mixed > 0 and math.isfinite(own / mixed) else None


def vocabulary_line(found: TokenFacts) -> Line:
    """Whether every id that can come up can be read by everyone who reads it."""
    rows = {"model's embedding": found.embedding_rows, "model's head": found.model_vocabulary}
    if found.reward_rows is not None:
        rows["reward model"] = found.reward_rows
    short = {who: count for who, count in rows.items() if count <= found.highest_id}
    # The sampler can draw every id that the head has, known to the tokenizer or not.
    drawn = found.model_vocabulary
    blind = {who: n for who, n in rows.items() if n < drawn} if not short else {}
    numbers = {
        "highest_id": float(found.highest_id),
        "tokenizer_size": float(found.tokenizer_size),
        "embedding_rows": float(found.embedding_rows),
        "model_vocabulary": float(found.model_vocabulary),
        "reward_rows": None if found.reward_rows is None else float(found.reward_rows),
    }
    title = "every id is in every vocabulary"
    if short or blind:
        grade = Grade.FAIL if short else Grade.WARN
        listed = ", ".join(f"the {who} has {count} rows" for who, count in (short or blind).items())
        top = f"ids go up to {found.highest_id}" if short else f"the sampler draws from {drawn} ids"
        remedy = "Nothing is resized here: give a tokenizer and models that fit each other."
        return Line("vocabulary", title, grade, f"{top}, but {listed}.", remedy, numbers)
    spare = found.model_vocabulary - found.tokenizer_size
    more = f"; {spare} rows of the head have no token" if spare > 0 else ""
    said = f"Ids up to {found.highest_id}; the model has {found.model_vocabulary} rows{more}."
    return Line("vocabulary", title, Grade.PASS, said, "", numbers)


def bos_line(found: TokenFacts) -> Line:
    """Whether a prompt begins with one BOS where the tokenizer has one, as the model was trained."""
    title = "a prompt begins with one BOS at most"
    numbers = {"bos_least": float(found.bos_least), "bos_most": float(found.bos_most)}
    if found.bos_most > 1:
        said = f"A prompt begins with {found.bos_most} BOS tokens (id {found.bos_id})."
        remedy = (
            "The template or the prompt's text writes one and the tokenizer adds another: take it out of the text, or "
            "set add_bos_token: false in the tokenizer's config."
        )
        return Line("bos", title, Grade.FAIL, said, remedy, numbers)
    if found.bos_least != found.bos_most:
        said = f"Some prompts begin with a BOS (id {found.bos_id}), others don't."
        remedy = "Look at the prompts' texts: some write the token themselves."
        return Line("bos", title, Grade.FAIL, said, remedy, numbers)
    if found.adds_bos and found.bos_most == 0:
        said = f"The tokenizer begins texts with a BOS (id {found.bos_id}), but no prompt has one."
        remedy = "Let the chat template write it (model.chat: never does without the template)."
        return Line("bos", title, Grade.WARN, said, remedy, numbers)
    said = "One on every prompt." if found.bos_most else "None, as the tokenizer has it."
    return Line("bos", title, Grade.PASS, said, "", numbers)


def template_line(found: TokenFacts) -> Line:
    """Whether the chat template went over a prompt once."""
    title = "the chat template is applied once"
    least, most = found.template_least, found.template_most
    numbers = {
        "template_least": None if least is None else float(least),
        "template_most": None if most is None else float(most),
        "copies": None if found.template_copies is None else float(found.template_copies),
    }
    if not found.uses_template:
        said = "No template is used: prompts go in as they are."
        return Line("template", title, Grade.PASS, said, "", numbers)
    if not found.template_tells_apart or found.template_copies == 0:
        said = (
            "The template writes something else than what the user says: cut, changed or in part."
            if found.template_tells_apart
            else "The template leaves out what the user says: every prompt is the same."
        )
        remedy = "Mend the tokenizer's chat_template, or set model.chat: never."
        return Line("template", title, Grade.FAIL, said, remedy, numbers)
    if found.template_copies is not None and found.template_copies > 1:
        said = f"The template writes what the user says {found.template_copies} times."
        remedy = "Unless the model was trained so: mend the tokenizer's chat_template, or set model.chat: never."
        return Line("template", title, Grade.WARN, said, remedy, numbers)
    if least is None or most is None:
        said = "It writes what the user says once, and marks no turn that could be counted in the prompts."
        return Line("template", title, Grade.PASS, said, "", numbers)
    if most > 1:
        said = f"The user's turn is opened {most} times in one prompt."
        remedy = (
            "The prompts hold the template already: give plain texts, or set model.chat: never."
        )
        return Line("template", title, Grade.FAIL, said, remedy, numbers)
    if least == 0:
        said = "Some prompts lack the user's turn after the template."
        remedy = "Look at the tokenizer's chat_template: it drops messages."
        return Line("template", title, Grade.FAIL, said, remedy, numbers)
    return Line("template", title, Grade.PASS, "Once on every prompt.", "", numbers)


def stop_line(found: StopFacts) -> Line:
    """Whether sampling stops where tokenizer and model say, and completions get there."""
    title = "every stop id ends a completion"
    listed = ", ".join(
        f"{token!r} ({i})" for i, token in zip(found.stop_ids, found.stop_tokens, strict=True)
    )
    numbers = {
        "num_stop_ids": float(len(found.stop_ids)),
        "num_missing": float(len(found.missing_stop_ids)),
        "num_stray": float(len(found.stray_stop_ids)),
        "ended_frac": found.ended_frac,
        "prompts_ended_frac": found.prompts_ended_frac,
    }
    if found.missing_stop_ids or found.stray_stop_ids:
        missing, stray = found.missing_stop_ids, found.stray_stop_ids
        parts = [f"{list(missing)} end a text by the model's config, but sampling goes on"] * bool(
            missing
        )
        parts += [f"sampling ends at {list(stray)}, which nobody calls an end"] * bool(stray)
        remedy = "Make eos_token_id of tokenizer, config and generation config agree."
        return Line("stop_ids", title, Grade.FAIL, f"Ids {'; ids '.join(parts)}.", remedy, numbers)
    if found.prompts_ended_frac > 0:
        by_tokenizer = found.tokenizer_ends_texts
        who = "the tokenizer adds it to every text" if by_tokenizer else "by text or template"
        said = (
            f"{100 * found.prompts_ended_frac:.0f} % of the prompts end in a stop token ({who}): to the model "
            "everything is said before it begins."
        )
        remedy = (
            "Set add_eos_token: false in the tokenizer's config, or take the token out of its post_processor."
            if by_tokenizer
            else "Unless the model was trained to answer after one, take it out of prompts or template."
        )
        grade = Grade.FAIL if by_tokenizer else Grade.WARN
        return Line("stop_ids", title, grade, said, remedy, numbers)
    said = f"{listed}; {100 * found.ended_frac:.0f} % of the completions ended by themselves."
    if found.ended_frac < limit.ENDED_WARN:
        remedy = "Raise trainer.max_new_tokens, or the model was never taught to end: cut texts are scored as they are."
        return Line("stop_ids", title, Grade.WARN, said, remedy, numbers)
    return Line("stop_ids", title, Grade.PASS, said, "", numbers)


def pad_line(found: StopFacts) -> Line:
    """Whether padding is a token that no text holds."""
    title = "padding is no token of a text"
    numbers = {
        "pad_id": float(found.pad_id),
        "pad_in_text_frac": found.pad_in_text_frac,
        "pad_is_stop": float(found.pad_is_stop),
        "pad_is_special": float(found.pad_is_special),
    }
    name = f"{found.pad_token!r} ({found.pad_id})"
    if not found.pad_is_in_vocabulary:
        remedy = "Set the tokenizer's pad_token to one that the model has."
        said = f"Padding is id {found.pad_id}, which the model's vocabulary has not."
        return Line("pad", title, Grade.FAIL, said, remedy, numbers)
    if (found.pad_in_text_frac > 0 or not found.pad_is_special) and not found.pad_is_stop:
        remedy = "Set the tokenizer's pad_token to one that no text holds, or to the stop token."
        share = f"{100 * found.pad_in_text_frac:.1f} % of the prompts' tokens"
        said = (
            f"Padding is {name}, an ordinary token ({share}): whoever masks by id takes it for padding "
            "wherever a text holds it."
        )
        return Line("pad", title, Grade.FAIL, said, remedy, numbers)
    said = f"{name}."
    if found.pad_is_stop:
        own = "" if found.has_own_pad else " (the tokenizer names none)"
        said = f"{name}, a stop token too{own}: harmless here, since masks go by position."
    return Line("pad", title, Grade.PASS, said, "", numbers)
