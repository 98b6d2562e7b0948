"""``kltune report``: one study in, its report out; several in, one page that compares them. Nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kltune.errors import ExitCode, RunError, SpecError
from kltune.launch.put import put
from kltune.launch.stdout import reserved_stdout
from kltune.launch.writable import takes_files
from kltune.metrics.jsonl import encode
from kltune.report.build import ReportPaths, build_report
from kltune.report.markdown import render_markdown
from kltune.report.page import render_page
from kltune.report.versus import labels_of, read_sides
from kltune.report.versus_blocks import compose_versus, versus_data
from kltune.report.versus_findings import compare_studies

COMPARISONS = Path("studies") / "compare"
"""Where comparisons go unless the request says otherwise."""
_LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The flags of ``kltune report``."""

    studies: tuple[Path, ...]
    out: Path | None = None
    """Folder of a comparison; None: by the studies' names under `COMPARISONS`."""
    as_json: bool = False

    @property
    def folder(self) -> Path:
        """Where a comparison goes."""
        return self.out or COMPARISONS / comparison_name(self.studies)

    def check(self) -> None:
        """Refuse what can't be written, before anything is read.

        Raises:
            SpecError: all of it in one message.
        """
        problems: list[str] = []
        if len(self.studies) == 1 and self.out is not None:
            problems.append(
                "--out: only with two studies or more; the report of one lies in its folder"
            )
        if len(self.studies) > 1:
            problems += _refused(self.folder)
        if problems:
            raise SpecError("; ".join(problems))


def run_report(request: ReportRequest) -> ExitCode:
    """Write the report of one study, or the comparison of several.

    Raises:
        SpecError: flags, or studies that can't be compared; nothing was written.
        StudyError: a folder that is no study.
        RunError: it can't be written.
    """
    request.check()
    one = len(request.studies) == 1
    paths = build_report(request.studies[0]) if one else compare_reports(request)
    with reserved_stdout(is_reserved=True) as result:
        if request.as_json:
            result.write(paths.json.read_text(encoding="utf-8"))
        else:
            result.writelines(f"{path}\n" for path in (paths.html, paths.markdown, paths.json))
        result.flush()
    return ExitCode.DONE


def compare_reports(request: ReportRequest) -> ReportPaths:
    """Compare the studies; the three twins lie in the request's folder. Raises as `run_report`."""
    found = compare_studies(read_sides(request.studies))
    document = compose_versus(found)
    folder = request.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: it can't be made: {error.strerror}") from error
    paths = ReportPaths(folder / "report.html", folder / "report.md", folder / "report.json")
    put(paths.html, render_page(document), force=True)
    put(paths.markdown, render_markdown(document), force=True)
    put(paths.json, encode(versus_data(found), indent=2) + "\n", force=True)
    return paths


def comparison_name(studies: Sequence[Path]) -> str:
    """A folder's name from the studies' names, e.g. ``kitchen-a-kitchen-b``."""
    name = "-".join(label.replace("/", "_") for label in labels_of(studies))
    return name[:_LONGEST_NAME]


def _refused(folder: Path) -> list[str]:
    if (folder / "resolved.json").exists():
        return [f"--out: {folder} is a study: its own report would be lost; give another folder"]
    if not takes_files(folder):
        return [f"--out: {folder} can't be written to; give a folder that can"]
    return []
