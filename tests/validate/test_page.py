from __future__ import annotations

from validate_case import validation

from kltune.grade import Grade
from kltune.report.markdown import render_markdown
from kltune.report.page import render_page
from kltune.validate.page import validation_page

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def test_the_page_is_offline_and_shows_hostile_text_as_it_is() -> None:
    document = validation_page(validation(*Grade, text=HOSTILE), HOSTILE)
    page = render_page(document)
    assert page.count("<script") == 2  # the page's own
    assert "<img" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "&lt;script&gt;" in page
    assert "<script" not in render_markdown(document)


def test_the_command_to_repeat_names_the_study_where_it_lies() -> None:
    text = render_markdown(validation_page(validation(Grade.PASS), "elsewhere/mine"))
    assert "Repeat: kltune validate elsewhere/mine\n" in text


def test_fails_come_first_and_only_what_there_is_has_a_section() -> None:
    whole = validation_page(validation(Grade.PASS, Grade.FAIL, Grade.WARN), "kitchen")
    assert [s.title.split()[0] for s in whole.sections][:3] == ["Fails", "Warnings", "Passes"]
    assert not whole.is_answer
    clean = validation_page(validation(Grade.PASS), "kitchen")
    assert [s.anchor for s in clean.sections] == ["pass", "untested", "reading"]
    assert clean.is_answer
