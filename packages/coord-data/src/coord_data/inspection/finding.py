"""Findings: faults of a data set, as printed on the console and written to findings.json."""

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
"""Share of affected records from which a fault is an error: it would spoil training."""


@dataclass(frozen=True)
class Finding:
    """One fault of a data set.

    Attributes:
        code: short name of the fault
        severity: `error` spoils training, `warning` reduces quality, `note` is information
        message: description of the fault
        evidence: figures that support it
        count: number of affected records
        fix: the line or option that corrects it
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
    """Return `error` if many records are affected, else `warning`."""
    return "error" if count >= SPOILS * max(total, 1) else "warning"


def most_severe_first(findings: Sequence[Finding]) -> list[Finding]:
    """Sort errors first, then warnings, then notes; the sort is stable."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write findings.json: a list, which is empty without findings."""
    write_text(path, json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False) + "\n")
