"""What `inspect` does with an examination: findings on the console, findings.json and inspect.html, the exit code."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from coord_codec import RunError
from coord_codec.counts import counted
from coord_data.finding import Finding, write_findings
from coord_data.inspection.examine import Examination
from coord_data.inspection.page import Page, write_page
from coord_data.reading.classes import absent_classes, class_categories

_LOG = logging.getLogger(__name__)


def write_report(examination: Examination, out: Path, page: Page | None = None) -> None:
    """Print a line for each finding, and write findings.json and inspect.html to a folder, created if missing.

    Args:
        examination: the data set and its findings
        out: the folder
        page: what a program that knows more of the data adds to the page
    """
    out.mkdir(parents=True, exist_ok=True)
    write_findings(out / "findings.json", examination.findings)
    write_page(out / "inspect.html", examination, page or Page(), examination.shown)
    say_findings(examination)
    for note in examination.notes:
        _LOG.info(f"  read: {note}")
    _LOG.info(f"page: {out / 'inspect.html'}")


def say_findings(examination: Examination) -> None:
    """Print a line for each finding."""
    images = counted(len(examination.raw.files), "image")
    _LOG.info(f"{images}, {counted(len(examination.raw), 'box', 'boxes')}, {examination.usable_boxes:,} of them usable")
    for finding in examination.findings:
        _LOG.info(f"  {finding}")
    if not examination.findings:
        _LOG.info("  nothing wrong was found")


def say_classes(examination: Examination, classes: Sequence[str] | None, source: str) -> None:
    """Print which classes of a list the data does not have, and that findings are of all classes.

    Raises:
        InputError: the annotations have none of the classes.
    """
    if classes is None:
        return
    stated = examination.annotations.categories
    class_categories(stated, classes, source)
    for note in absent_classes(stated, classes):
        _LOG.info(f"note: {note}")
    _LOG.info("note: the findings are of all classes of the file, also of those that the list of classes leaves out")


def refuse(findings: Sequence[Finding], strict: bool, where: str) -> None:
    """Raise a RunError for findings that would spoil training; with `strict`, for warnings as well."""
    counts = Counter(finding.severity for finding in findings)
    if counts["error"] or (strict and counts["warning"]):
        listed = [counted(counts[severity], severity) for severity in ("error", "warning") if counts[severity]]
        raise RunError(f"{' and '.join(listed)} in the data would spoil training; correct the data first, {where}")
