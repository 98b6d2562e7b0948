from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from page_case import HOSTILE, frontier, report

from kltune.report.document import Document, Grid, Section

if TYPE_CHECKING:
    from tests.browser.conftest import Seen, Show

POINT = """() => {
  const plot = document.querySelector('#frontier .plot');
  const box = plot.getBoundingClientRect();
  const {xaxis, yaxis} = plot._fullLayout;
  const trace = plot.data[0];
  const at = trace.customdata.lastIndexOf(7);
  return [box.left + xaxis._offset + xaxis.d2p(trace.x[at]), box.top + yaxis._offset + yaxis.d2p(trace.y[at])];
}"""
THEME = "() => getComputedStyle(document.body).backgroundColor"
WHITE, NIGHT = "rgb(255, 255, 255)", "rgb(20, 23, 27)"


def numbers(seen: Seen) -> list[int]:
    """Trials of the table, in the order shown."""
    rows = seen.page.query_selector_all(".trials tbody tr:not([hidden]) td:first-child")
    return [int(cell.inner_text()) for cell in rows]


def test_every_chart_is_drawn_and_nothing_is_said_or_asked_for(show: Show) -> None:
    with show(report()) as seen:
        seen.draw_all()
        assert seen.page.locator("figure.drawn .plot .main-svg").first.is_visible()
        assert not seen.page.locator("figure.drawn .picture").first.is_visible()


def test_a_click_on_a_point_opens_its_trial(show: Show) -> None:
    with show(report()) as seen:
        seen.draw_all()
        seen.page.locator("#frontier").scroll_into_view_if_needed()
        seen.page.mouse.click(*seen.page.evaluate(POINT))
        seen.page.wait_for_selector("dialog[open]")
        assert seen.page.inner_text("dialog h2") == "Trial 7"
        assert seen.page.url.endswith("#trial-7")
        seen.page.wait_for_function(
            "() => document.querySelectorAll('dialog .plot .main-svg').length >= 2"
        )
        assert "k2-loss 0.007" in seen.page.inner_text("dialog .facts")
        assert "kltune replay studies/x --trial 7" in seen.page.inner_text("dialog .commands")


def test_hovering_over_a_point_shows_its_trial_and_value(show: Show) -> None:
    with show(report()) as seen:
        seen.draw_all()
        seen.page.locator("#frontier").scroll_into_view_if_needed()
        seen.page.mouse.move(*seen.page.evaluate(POINT))
        seen.page.wait_for_selector("#frontier .hoverlayer .hovertext")
        x = frontier(12).traces[0]
        gold = x["y"][len(x["customdata"]) - 1 - list(reversed(x["customdata"])).index(7)]
        shown = seen.page.text_content("#frontier .hoverlayer") or ""
        assert "trial 7" in shown
        assert f"{gold:.3f}"[:4] in shown


def test_columns_sort_as_numbers_up_down_and_back(show: Show) -> None:
    with show(report(40)) as seen:
        first = numbers(seen)
        head = seen.page.locator(".trials th", has_text="value")
        button = head.locator("button")
        button.click()
        assert head.get_attribute("aria-sort") == "ascending"
        values = seen.page.locator(".trials tbody td:nth-child(4)").all_inner_texts()
        told = [float(v) for v in values if v != "–"]
        assert told == sorted(told)
        assert values[-1] == "–"  # what has no value is last either way
        button.click()
        assert head.get_attribute("aria-sort") == "descending"
        assert numbers(seen)[0] == 3
        assert seen.page.locator(".trials tbody td:nth-child(4)").last.inner_text() == "–"
        button.click()
        assert (head.get_attribute("aria-sort"), numbers(seen)) == ("none", first)


@pytest.mark.slow
def test_durations_sort_by_their_length(show: Show) -> None:
    with show(report(6)) as seen:
        seen.page.locator(".trials th button", has_text="time").click()
        assert numbers(seen) == [0, 2, 4, 1, 3, 5]


def table(header: tuple[str, ...], *rows: tuple[str, ...]) -> Document:
    """A report that is a table of all trials alone."""
    grid = Grid(header, rows, kind="trials")
    section = Section("All trials", "trials", (grid,))
    return Document("t", "", "h", is_answer=True, sections=(section,))


def test_numbers_inside_a_setting_sort_by_their_value(show: Show) -> None:
    settings = (
        "k1-reward 0.5",
        "k1-reward 0.12",
        "k10-loss 0.1",
        "k1-reward 5e-05",
        "k2-loss 9",
        "k2-loss 10",
    )
    rows = [(str(n), setting) for n, setting in enumerate(settings)]
    with show(table(("trial", "setting"), *rows)) as seen:
        seen.page.locator(".trials th button", has_text="setting").click()
        assert numbers(seen) == [3, 1, 0, 4, 5, 2]


def test_in_print_the_table_of_trials_breaks_no_word(show: Show) -> None:
    header = ("trial", "setting", "state", "beta range", "why it ended", "from", "time")
    why = "gold fell from 0.9 at step 30, the best checkpoint, " * 4
    row = ("0", "k1-reward 0.5", "complete", "0.1 – 0.2", why, "Sobol point", "1 min 2 s")
    with show(table(header, row)) as seen:
        seen.page.set_viewport_size({"width": 700, "height": 900})
        assert seen.page.locator(".trials td", has_text="Sobol").is_visible()
        seen.page.emulate_media(media="print")
        assert not seen.page.locator(".trials td", has_text="Sobol").is_visible()
        state = seen.page.locator(".trials td", has_text="complete").first
        lines = "e => { const r = document.createRange(); r.selectNodeContents(e); return new Set([...r.getClientRects()].map((b) => b.top)).size; }"
        assert state.evaluate(lines) == 1
        said = "getComputedStyle(document.querySelector('.trials'), '::before').content"
        assert "Not printed" in seen.page.evaluate(said)


def test_on_a_phone_a_table_of_three_columns_is_whole(show: Show) -> None:
    header = ("told apart are", "low seed noise", "middle seed noise", "high seed noise")
    row = ("two settings that were named beforehand", *["0.23 gold or more"] * 3)
    grid = Grid(header, (row,), numeric=frozenset((1, 2, 3)))
    page = dataclasses.replace(table(("trial",)), sections=(Section("P", "power", (grid,)),))
    with show(page) as seen:
        seen.page.set_viewport_size({"width": 375, "height": 800})
        assert seen.page.locator("#power .scroll").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_the_filter_takes_words_and_a_state(show: Show) -> None:
    with show(report(40)) as seen:
        seen.page.fill(".filter input", "0.004 complete")
        seen.page.wait_for_function(
            "() => document.querySelector('.filter [role=status]').textContent === '1 of 40 trials'"
        )
        assert numbers(seen) == [3]
        seen.page.fill(".filter input", "")
        seen.page.select_option(".filter select", "pruned")
        assert numbers(seen) == [10, 25]


@pytest.mark.slow
def test_previous_and_next_follow_the_table_as_it_is_filtered(show: Show) -> None:
    with show(report(40)) as seen:
        seen.page.select_option(".filter select", "pruned")
        seen.page.click("#trial-10 a")
        assert seen.page.locator("dialog .before").is_disabled()
        seen.page.click("dialog .after")
        assert seen.page.inner_text("dialog h2") == "Trial 25"
        assert seen.page.locator("dialog .after").is_disabled()
        seen.page.keyboard.press("ArrowLeft")
        assert seen.page.inner_text("dialog h2") == "Trial 10"


def test_the_keyboard_opens_a_trial_and_comes_back(show: Show) -> None:
    with show(report()) as seen:
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate("document.activeElement.className") == "skip"
        for _ in range(60):
            seen.page.keyboard.press("Tab")
            if seen.page.evaluate("document.activeElement.getAttribute('href')") == "#trial-2":
                break
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector("dialog[open]")
        assert seen.page.inner_text("dialog h2") == "Trial 2"
        seen.page.keyboard.press("Escape")
        seen.page.wait_for_selector("dialog:not([open])", state="attached")
        assert seen.page.evaluate("document.activeElement.getAttribute('href')") == "#trial-2"
        assert "#" not in seen.page.url


@pytest.mark.slow
def test_an_address_opens_its_trial_and_back_closes_it(show: Show) -> None:
    with show(report(), anchor="#trial-5") as seen:
        assert seen.page.inner_text("dialog[open] h2") == "Trial 5"
        seen.page.keyboard.press("Escape")
        seen.page.click("#trial-6 a")
        assert seen.page.inner_text("dialog[open] h2") == "Trial 6"
        seen.page.go_back()
        seen.page.wait_for_selector("dialog:not([open])", state="attached")


def test_the_theme_goes_round_and_the_charts_follow(show: Show) -> None:
    with show(report(), color_scheme="light") as seen:
        seen.draw_all()
        line = "() => document.querySelector('#frontier .plot').data[0].line.color"
        assert (seen.page.evaluate(THEME), seen.page.evaluate(line)) == (WHITE, "#1b1f24")
        seen.page.click("#theme")
        assert seen.page.evaluate(THEME) == NIGHT
        seen.page.wait_for_function(f"() => ({line})() === '#e6e9ed'")
        seen.page.reload()
        assert seen.page.evaluate(THEME) == NIGHT  # remembered
        seen.page.click("#theme")
        seen.page.click("#theme")
        assert seen.page.inner_text("#theme") == "Theme: system"


@pytest.mark.slow
def test_the_systems_dark_theme_is_taken(show: Show) -> None:
    with show(report(), color_scheme="dark") as seen:
        assert seen.page.evaluate(THEME) == NIGHT


@pytest.mark.parametrize("width", [375, pytest.param(1280, marks=pytest.mark.slow), 3840])
def test_no_width_scrolls_sideways(show: Show, width: int) -> None:
    with show(report(text="w" * 3_000), width=width) as seen:
        seen.draw_all()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.page.evaluate("location.hash = '#trial-3'")
        seen.page.wait_for_selector("dialog[open]")
        box = seen.page.locator("dialog").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


@pytest.mark.slow
def test_on_a_narrow_screen_the_sections_are_a_menu(show: Show) -> None:
    with show(report(), width=375) as seen:
        assert not seen.page.locator("nav.side").is_visible()
        seen.page.click("details.menu summary")
        seen.page.click("details.menu a[href='#trials']")
        assert seen.page.get_attribute("details.menu", "open") is None
        assert seen.page.locator("#trials h2").is_visible()


@pytest.mark.slow
def test_the_section_that_is_read_is_marked(show: Show) -> None:
    with show(report(40), height=500) as seen:
        seen.page.evaluate(
            "document.querySelector('#samples').scrollIntoView({behavior: 'instant'})"
        )
        seen.page.wait_for_selector("nav.side a[href='#samples'][aria-current]")
        assert seen.page.locator("nav.side [aria-current]").count() == 1


def test_without_scripts_everything_is_there(show: Show) -> None:
    with show(report(40), java_script_enabled=False) as seen:
        assert seen.page.locator("figure .picture svg").first.is_visible()
        assert seen.page.locator(".trials tbody tr").count() == 40
        assert seen.page.locator("#theme, .copy, .filter").filter(visible=True).count() == 0
        seen.page.click("#trial-9 a")
        assert seen.page.url.endswith("#trial-9")
        assert seen.page.locator("#trial-9").is_visible()


def test_in_print_charts_are_pictures_and_tables_are_whole(show: Show) -> None:
    with show(report(40), color_scheme="dark") as seen:
        seen.draw_all()
        seen.page.click("#theme")
        seen.page.click("#theme")
        seen.page.emulate_media(media="print")
        assert seen.page.evaluate(THEME) == WHITE  # paper is white, whatever the screen was
        assert seen.page.locator("figure .picture").first.is_visible()
        assert seen.page.locator(".plot, .filter, #theme, nav").filter(visible=True).count() == 0
        cut = "() => { const t = document.querySelector('.scroll.trials'); return t.scrollHeight - t.clientHeight; }"
        assert seen.page.evaluate(cut) <= 1
        assert len(seen.page.pdf(prefer_css_page_size=True)) > 10_000


TEXTS = [HOSTILE[1], *(pytest.param(text, marks=pytest.mark.slow) for text in HOSTILE)]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_hostile_text_is_shown_and_runs_nothing(show: Show, text: str) -> None:
    with show(report(text=text)) as seen:
        seen.draw_all()
        seen.page.evaluate("location.hash = '#trial-4'")
        seen.page.wait_for_selector("dialog[open] .plot .main-svg")
        shown = text if text.isascii() and text.isprintable() else text[:1]
        assert shown in seen.page.inner_text("#samples .completion")
        assert shown in seen.page.inner_text("dialog .facts")
        strange = "img, svg[onload], [onerror], [onmouseover], iframe, script[src]"
        assert seen.page.locator(strange).count() == 0
        kinds = seen.page.evaluate("[...document.scripts].map(s => s.type).filter(t => !t).length")
        assert kinds == 3  # the page's two and the library


def test_the_policy_lets_no_other_script_run(show: Show) -> None:
    with show(report()) as seen:
        seen.page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            " document.body.append(s); }"
        )
        assert seen.page.evaluate("window.ran") is None
        assert "Content Security Policy" in seen.said.pop()
        assert seen.said == []


@pytest.mark.slow
def test_copy_buttons_copy_what_stands_beside_them(show: Show) -> None:
    with show(report(), permissions=["clipboard-read", "clipboard-write"]) as seen:
        seen.page.click(".hero .code .copy")
        seen.page.wait_for_selector(".hero .code .copy:text('Copied')")
        read = "navigator.clipboard.readText()"
        assert seen.page.evaluate(read) == "kltune export studies/x --to trl"
        seen.page.click("text=Copy these settings")
        seen.page.wait_for_selector(".what > .copy:text('Copied')")
        assert "beta: 0.02\ntarget KL: 0.1 nats per token" in seen.page.evaluate(read)


@pytest.mark.slow
def test_a_chart_that_fails_leaves_its_picture(show: Show) -> None:
    broken = "delete window.DecompressionStream; window.DecompressionStream = class { constructor() { throw new Error('no'); } }"
    with show(report()) as seen:
        seen.page.add_init_script(broken)
        seen.page.reload()
        seen.page.locator("#frontier").scroll_into_view_if_needed()
        seen.page.wait_for_selector("figure[data-failed]", state="attached")
        assert seen.page.locator("figure .picture").first.is_visible()
        seen.page.click("#trial-3 a")
        seen.page.wait_for_selector("dialog .curves:has-text('drawn in this browser')")
