"""Findings: faults of a data set, as printed on the console and written to findings.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coord_codec.files import write_text
from coord_data.finding_codes import FINDING_CODES, Severity

_ORDER = ("error", "warning", "note")

SPOILS = 0.05
"""Share of affected records from which a fault is an error: it would spoil training."""


@dataclass(frozen=True)
class Finding:
    """One fault of a data set.

    Attributes:
        code: short name of the fault, a row of `FINDING_CODES`
        severity: `error` spoils training, `warning` reduces quality, `note` is information
        message: description of the fault
        evidence: figures that support it
        count: number of affected records
        fix: the line, option or command that corrects it
        pairs: paths of all images that are alike, in pairs; only of findings about duplicates
        read_as: the reading of all boxes that is proposed, as `--read-as` takes it; the page draws it beside theirs

    Example:
        >>> print(Finding("exif", "note", "images have an EXIF orientation", "z 3.1", 4, "store them upright"))
        note: exif: images have an EXIF orientation [z 3.1]; store them upright
    """

    code: str
    severity: Severity
    message: str
    evidence: str
    count: int
    fix: str
    pairs: tuple[tuple[str, str], ...] = ()
    read_as: str = ""

    def __post_init__(self) -> None:
        row = FINDING_CODES.get(self.code)
        if row is None or self.severity not in row.grades:
            expected = (
                f"one of {', '.join(row.grades)}" if row else "a row of FINDING_CODES, which has none of this name"
            )
            raise ValueError(f"finding {self.code!r}: expected {expected}, found {self.severity!r}")

    def __str__(self) -> str:
        return f"{self.severity}: {self.code}: {self.message} [{self.evidence}]; {self.fix}"

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Finding:
        """Return the finding of a row of findings.json."""
        return cls(**{**row, "pairs": tuple((first, second) for first, second in row.get("pairs", ()))})

    def to_json(self) -> dict[str, Any]:
        """Return the row of findings.json: no `read_as`, which `fix` states, and `pairs` only if there are some."""
        row = asdict(self)
        del row["read_as"]
        return row if row["pairs"] else {key: value for key, value in row.items() if key != "pairs"}


def by_share(count: int, total: int) -> Severity:
    """Return `error` if many records are affected, else `warning`."""
    return "error" if count >= SPOILS * max(total, 1) else "warning"


def most_severe_first(findings: Sequence[Finding]) -> list[Finding]:
    """Sort errors first, then warnings, then notes; the sort is stable."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write findings.json: a list, which is empty without findings."""
    rows = [finding.to_json() for finding in findings]
    write_text(path, json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
