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
    """The changelog with its [Unreleased] entries under the version and its date; None where nothing is said of it.

    A section that the version has already, written before its tag, takes the entries in, kind by kind.
    """
    headings = list(HEADING.finditer(text))
    taken = [heading for heading in headings if heading["name"] in ("Unreleased", str(version))]
    if not taken or headings[: len(taken)] != taken:
        return None
    end = headings[len(taken)].start() if len(headings) > len(taken) else len(text)
    above, *parts = HEADING.split(text[:end])
    body = _joined(parts[::-1][::3])  # what stands below a heading follows its name and date
    if not re.search(r"^- ", body, re.MULTILINE):
        return None
    rest = text[end:]
    return f"{above}## [{version}] - {day}\n\n{body}\n" + (rest and f"\n{rest}")


def _joined(bodies: list[str]) -> str:
    """Sections as one: what stands above their kinds, then each kind with the entries of all."""
    kinds: dict[str, list[str]] = {}
    for block in (block for body in bodies for block in re.split(r"^(?=### )", body, flags=re.MULTILINE)):
        heading, _, entries = block.partition("\n") if block.startswith("### ") else ("", "", block)
        kinds.setdefault(heading.strip(), []).append(entries.strip())
    blocks = ("\n".join([heading, *texts]).strip() for heading, texts in kinds.items())
    return "\n\n".join(filter(None, blocks))
