"""Checks the head of a changelog in the format of Keep a Changelog 1.1, and dates it for a release."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from packaging.version import Version

HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?[ \t]*$", re.MULTILINE)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def changelog_faults(file: Path, version: Version) -> list[str]:
    """Return why the changelog does not announce this version; an empty [Unreleased] section may precede it."""
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
    """Return the changelog with its [Unreleased] entries moved to the version and date; None if there are no entries.

    If the version already has a section, written before its tag, the entries are merged into it kind by kind.
    """
    headings = list(HEADING.finditer(text))
    merged = [heading for heading in headings if heading["name"] in ("Unreleased", str(version))]
    if not merged or headings[: len(merged)] != merged:
        return None
    end = headings[len(merged)].start() if len(headings) > len(merged) else len(text)
    above, *parts = HEADING.split(text[:end])
    body = _merged(parts[::-1][::3])  # each heading splits into name, date and the text below it
    if not re.search(r"^- ", body, re.MULTILINE):
        return None
    rest = text[end:]
    return f"{above}## [{version}] - {day}\n\n{body}\n" + (rest and f"\n{rest}")


def _merged(bodies: list[str]) -> str:
    """Return several sections as one: text before the first kind, then each kind with all of its entries."""
    kinds: dict[str, list[str]] = {}
    for block in (block for body in bodies for block in re.split(r"^(?=### )", body, flags=re.MULTILINE)):
        heading, _, entries = block.partition("\n") if block.startswith("### ") else ("", "", block)
        kinds.setdefault(heading.strip(), []).append(entries.strip())
    blocks = ("\n".join([heading, *texts]).strip() for heading, texts in kinds.items())
    return "\n\n".join(filter(None, blocks))
