"""A document in, one self-contained HTML page out: no network, every text escaped, whole without its script."""

from __future__ import annotations

from importlib.resources import files

from kltune.report.document import Document
from kltune.report.embed import (
    HEAD_SCRIPTS,
    PAGE_SCRIPTS,
    bundle,
    packed,
    script,
    script_hash,
    sheets_island,
)
from kltune.report.page_blocks import escaped, has_charts, section_html, trial_numbers

__all__ = ["escaped", "render_page"]

_MENU = """<details class="menu"><summary>Sections</summary><nav aria-label="Sections, menu">{links}</nav></details>"""


def render_page(document: Document) -> str:
    """The whole report as HTML.

    Its policy lets three scripts run, each named by its hash: what a model wrote could not run
    even where it was taken for markup. A page that is served asks its own server for news, any
    other asks nobody for anything.
    """
    style = files("kltune.report").joinpath("page.css").read_text(encoding="utf-8")
    head, page = script(HEAD_SCRIPTS), script(PAGE_SCRIPTS)
    trials = trial_numbers(document.sections)
    sections = "\n".join(section_html(s, trials) for s in document.sections)
    links = "".join(f'<a href="#{s.anchor}">{escaped(s.title)}</a>' for s in document.sections)
    library = bundle() if has_charts(document.sections) or document.sheets else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_policy(document, (head, page, library))}">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{escaped(document.title)}</title>
<style>
{style}
</style>
<script>{head}</script>
</head>
<body{" data-live" if document.is_live else ""}>
<a class="skip" href="#report">Skip to the report</a>
{_header(document, links)}
<div class="layout">
<nav class="side" aria-label="Sections">{links}</nav>
<main id="report" tabindex="-1">
<p class="{_kind(document)}">{escaped(document.headline)}</p>
{sections}
</main>
</div>
{_data(document, library)}
<script>{page}</script>
</body>
</html>
"""


def _policy(document: Document, scripts: tuple[str, ...]) -> str:
    hashes = " ".join(script_hash(text) for text in scripts if text)
    parts = [
        "default-src 'none'",
        f"script-src {hashes}",
        "style-src 'unsafe-inline'",  # matplotlib's and plotly's drawings carry styles
        "img-src data: blob:",  # plotly's PNG
        *(["connect-src 'self'"] if document.is_live else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(parts)


def _header(document: Document, links: str) -> str:
    live = '<p class="live needs-script" role="status"></p>' if document.is_live else ""
    return f"""<header>
<div class="bar"><h1>{escaped(document.title)}</h1><p class="sub">{escaped(document.subtitle)}</p>{live}
<div class="tools needs-script"><button type="button" id="theme">Theme</button><button type="button" id="print">Print</button></div></div>
</header>
{_MENU.format(links=links)}"""


def _kind(document: Document) -> str:
    """Doubt is a word in the headline and a colour here."""
    is_clear = document.is_answer and not document.is_doubtful
    return "answer" if is_clear else "answer none"


def _data(document: Document, library: str) -> str:
    """What the script reads: the trials, and the library it draws with."""
    parts: list[str] = []
    if document.sheets:
        sheets = sheets_island(document.sheets)
        parts.append(f'<script type="application/json" id="sheets">{sheets}</script>')
    if library:
        parts.append(f'<script type="text/plain" id="plotly">{packed(library)}</script>')
    return "\n".join(parts)
