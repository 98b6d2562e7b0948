"""A study with a confirmation in, what it said as blocks of the report, as data and in one sentence out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kltune.confirm import words
from kltune.confirm.looks import looks_words, read_looks
from kltune.confirm.result import ConfirmResult, Judgement, read_confirmed
from kltune.errors import StudyError
from kltune.report.document import Block, Facts, Grid, Paragraph
from kltune.report.recommend import Answer, Recommendation
from kltune.report.rows import StudyRows
from kltune.report.ties import confirmed_tie_words
from kltune.trial.words import MISSING, count_words, number, score

_HEADER = (
    "setting",
    "what it is",
    "stop (step)",
    "gold on test",
    "95 % interval",
    "after shrinkage",
    "KL (nats/token)",
    "recommended is above by",
    "interval, all at once",
    "higher in seeds",
)


def find_confirmation(study_path: Path) -> tuple[ConfirmResult | None, str | None]:
    """The latest confirmation of a study, and a note where its file can't be read: it must not cost the report."""
    try:
        return read_confirmed(study_path), None
    except StudyError as error:
        return (
            None,
            f"Nothing is said of fresh seeds: {str(error).replace(str(study_path), study_path.name)}.",
        )


def is_of(result: ConfirmResult, answer: Answer) -> bool:
    """Whether it is about what is recommended now: more trials may have run since."""
    return isinstance(answer, Recommendation) and result.arms[0].number == answer.best.number


def confirmed_words(study: StudyRows, answer: Answer) -> str | None:
    """What fresh seeds and test prompts said about the answer, for its headline; none where they weren't asked."""
    result, _ = find_confirmation(study.path)
    if result is None:
        return None
    if not is_of(result, answer):
        return f"Not confirmed: the last confirmation was of {result.arms[0].name}, before other trials ran."
    gold = result.main.places[0]
    found = next((p for p in result.main.places if p.arm == 0), gold)
    start = next((p for p in result.main.places if result.arms[p.arm].role == "start"), None)
    before = "" if start is None else f"; {score(start.gold)} before training"
    return (
        f"On {len(result.seeds)} fresh seeds and {result.num_prompts} test prompts: gold {score(found.gold)} (95 % interval "
        f"{score(found.low)} to {score(found.high)}){before}. {verdict_short(result)}"
    )


def verdict_short(result: ConfirmResult) -> str:
    """The verdict where the section below names everyone."""
    judged = result.main
    others = [a for a in judged.against if a.role != "start"]
    tied = sum(not a.is_told_apart for a in others)
    if judged.verdict == "changes":
        return words.headline(result)
    if judged.verdict == "stays":
        return f"It is better there than {'all' if len(others) > 1 else 'the'} {count_words(len(others), 'other setting')} tried."
    of = count_words(len(others), "other setting")
    return f"Tied there with {tied} of {of}{confirmed_tie_words(result)}."


def confirm_blocks(study: StudyRows, answer: Answer) -> tuple[Block, ...]:
    """The section; empty where no confirmation was made."""
    result, note = find_confirmation(study.path)
    if result is None:
        return () if note is None else (Paragraph(note, "warning"),)
    blocks: list[Block] = [Paragraph(words.headline(result))]
    if not is_of(result, answer):
        text = f"This was about {result.arms[0].name}; something else is recommended now. Run kltune confirm again."
        blocks.insert(0, Paragraph(text, "warning"))
    facts = [
        ("Single seeds", words.seeds_words(result)),
        ("Against the best known recipe", words.recipe_words(result)),
        ("Luck of the pick", words.luck_words(result)),
        ("What could be seen", words.least_words(result)),
        ("KL limit", words.kl_words(result)),
        ("Test prompts", looks_words(study.path)),
    ]
    blocks.append(Facts(tuple((label, text) for label, text in facts if text)))
    for judged in result.judgements:
        if judged is not result.main:
            blocks.append(
                Paragraph(
                    f"By {judged.gold}: {words.verdict_sentence(judged, 'on the same completions')}"
                )
            )
        blocks.append(_grid(result, judged))
    blocks += [Paragraph(note, "warning") for note in result.notes]
    blocks.append(Paragraph(words.METHOD, "note"))
    return tuple(blocks)


def confirm_facts(study: StudyRows, answer: Answer) -> dict[str, Any]:
    """For report.json: the whole of confirm.json, whether it is of the recommended setting, and the looks."""
    result, _ = find_confirmation(study.path)
    if result is None:
        return {"confirmation": None, "looks_at_test": len(read_looks(study.path))}
    return {
        "confirmation": {
            **result.as_json(),
            "headline": words.headline(result),
            "is_of_recommended": is_of(result, answer),
        },
        "looks_at_test": len(read_looks(study.path)),
    }


def _grid(result: ConfirmResult, judged: Judgement) -> Grid:
    differences = {found.arm: found for found in judged.against}
    rows: list[tuple[str, ...]] = []
    for place in judged.places:
        arm, found = result.arms[place.arm], differences.get(place.arm)
        cells = (MISSING, MISSING, MISSING)
        if found is not None:
            apart = "" if found.is_told_apart else ", can't be told apart"
            cells = (
                f"{found.difference:+.3f}",
                f"{found.low:+.3f} to {found.high:+.3f}{apart}",
                f"{found.seeds_above} of {len(result.seeds)}",
            )
        rows.append(
            (
                judged.names[place.arm],
                words.role_words(arm) or MISSING,
                str(arm.stop),
                score(place.gold),
                f"{place.low:.3f} to {place.high:.3f}",
                score(place.shrunk),
                number(arm.kl_token),
                *cells,
            )
        )
    return Grid(
        _HEADER, tuple(rows), marked=frozenset((judged.winner,)), numeric=frozenset((2, 3, 5, 6, 7))
    )
