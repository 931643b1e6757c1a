"""The head of a changelog in the form of Keep a Changelog 1.1: checked, and dated for a release."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from packaging.version import Version

HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?[ \t]*$", re.MULTILINE)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def changelog_faults(file: Path, version: Version) -> list[str]:
    """Why the changelog does not announce this version; an empty [Unreleased] section may stand above it."""
    text = file.read_text("utf-8")
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    sections = [(h["name"], h["date"], text[h.end() : end].strip()) for h, end in zip(headings, ends, strict=True)]
    faults = []
    if sections and sections[0][0] == "Unreleased":
        if sections[0][2]:
            faults.append(f"{file.name} has entries under [Unreleased]: put them under [{version}] with its date")
        sections = sections[1:]
    if not sections or sections[0][0] != str(version):
        head = f"[{sections[0][0]}]" if sections else "no released version"
        return [*faults, f"{file.name} begins with {head}; expected '## [{version}] - YYYY-MM-DD'"]
    _, date, body = sections[0]
    if date is None:
        faults.append(f"{file.name}: [{version}] has no date")
    kinds = re.findall(r"^### (.+?)\s*$", body, re.MULTILINE)
    if not re.search(r"^- ", body, re.MULTILINE):
        faults.append(f"{file.name}: [{version}] says nothing")
    faults += [f"{file.name}: '{k}' is none of {', '.join(sorted(KINDS))}" for k in kinds if k not in KINDS]
    return faults


def dated(text: str, version: Version, day: date) -> str | None:
    """The changelog with its [Unreleased] entries under the version and its date; None where there are none."""
    first = HEADING.search(text)
    if first is None or first["name"] != "Unreleased":
        return None
    following = HEADING.search(text, first.end())
    if not re.search(r"^- ", text[first.end() : following.start() if following else None], re.MULTILINE):
        return None
    return f"{text[: first.start()]}## [{version}] - {day}{text[first.end() :]}"
