"""The answer, as JSON, Markdown and one self-contained HTML page."""
