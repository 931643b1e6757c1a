"""What is wrong with a data set: a finding each, on the console and in findings.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from coord_codec.files import write_text

Severity = Literal["error", "warning", "note"]
_ORDER = ("error", "warning", "note")

SPOILS = 0.05
"""Share of the records from which on a fault is an error: training would learn it, or miss too much."""


@dataclass(frozen=True)
class Finding:
    """One fault of a data set.

    Attributes:
        code: short name of the fault
        severity: `error` spoils training, `warning` costs something, `note` is worth knowing
        message: what is wrong
        evidence: the figures that show it
        count: number of records concerned
        fix: the line or option that mends it
    """

    code: str
    severity: Severity
    message: str
    evidence: str
    count: int
    fix: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.code}: {self.message} [{self.evidence}]; {self.fix}"


def by_share(count: int, total: int) -> Severity:
    """Return `error` for a fault of many records, `warning` for one of few."""
    return "error" if count >= SPOILS * max(total, 1) else "warning"


def most_severe_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return errors, warnings, notes; the order among equals stays."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write findings.json: a list, empty where nothing is wrong."""
    write_text(path, json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False) + "\n")
