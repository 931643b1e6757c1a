"""`inspect`, and the same before every training: findings on the console, findings.json and inspect.html."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from coord_codec import InputError
from coord_codec.files import read_json
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import RunError, say
from coord_trainer.inspection.examine import DataSource, Examination, examine
from coord_trainer.inspection.findings import Finding, write_findings

FINDINGS_VERSION = 1
"""Raised when the same data gives other findings than before."""


def sources(config: RunConfig) -> tuple[DataSource, DataSource | None]:
    """Return the training set and, where one is named, the held-out set of a configuration."""
    data = config.data
    heldout = data.heldout_annotations and DataSource(data.heldout_annotations, data.heldout_images)
    return DataSource(data.annotations, data.images), heldout or None


def inspect_data(config: RunConfig, out: Path, *, with_model: bool, strict: bool) -> Examination:
    """Examine the data of a configuration, print the findings, and write them to the folder `out`.

    Args:
        config: names the data
        out: created if missing
        with_model: show images and tokens as the model of the configuration is given them
        strict: warnings fail as errors do

    Raises:
        InputError: the annotations cannot be read.
        RunError: a finding would spoil training.
    """
    source, heldout = sources(config)
    found = examine(source, config.data.max_objects, heldout)
    out.mkdir(parents=True, exist_ok=True)
    write_findings(out / "findings.json", found.findings)
    say_findings(found)
    say(f"findings: {out / 'findings.json'}")
    refuse(found.findings, strict, f"see {out}")
    return found


def say_findings(found: Examination) -> None:
    """Print a line for each finding."""
    boxes = sum(len(instance.targets) for instance in found.annotations.instances)
    say(f"{len(found.raw.files)} images, {len(found.raw)} boxes, {boxes} of them usable")
    for finding in found.findings:
        say(f"  {finding}")
    if not found.findings:
        say("  nothing wrong was found")


def refuse(findings: Sequence[Finding], strict: bool, where: str) -> None:
    """Raise a RunError for findings that would spoil training; with `strict`, for warnings as well."""
    counts = Counter(finding.severity for finding in findings)
    if counts["error"] or (strict and counts["warning"]):
        told = " and ".join(f"{counts[s]} {s}{'s' * (counts[s] > 1)}" for s in ("error", "warning") if counts[s])
        raise RunError(f"{told} in the data: training on it would be spoiled; mend them first, {where}")


def check_before_training(config: RunConfig, digests: Sequence[str], cache: Path) -> list[Finding]:
    """Print the findings about a run's data, a line each; they are kept by digest and not made again.

    Args:
        config: the run
        digests: of its sets as training reads them
        cache: folder of earlier findings, made when there is something to keep

    Raises:
        RunError: with `data.strict`, for errors and warnings.
    """
    source, heldout = sources(config)
    key = hashlib.sha256(f"{FINDINGS_VERSION} {config.data.max_objects} {digests}".encode())
    for part in (source, heldout):
        key.update(part.annotations.read_bytes() if part is not None else b"")
    kept = cache / f"{key.hexdigest()[:16]}.json"
    if kept.is_file():
        findings = [Finding(**row) for row in read_json(kept)]
    else:
        findings = list(examine(source, config.data.max_objects, heldout).findings)
        cache.mkdir(parents=True, exist_ok=True)
        write_findings(kept, findings)
    for finding in findings:
        say(f"  {finding}")
    if config.data.strict:
        refuse(findings, True, "or train without --strict (data.strict)")
    return findings


@contextmanager
def explain_unusable(config: RunConfig) -> Iterator[None]:
    """Where a set cannot be used at all, print what the doctor finds in it before the error goes on."""
    try:
        yield
    except InputError:
        with suppress(InputError, OSError):
            say_findings(examine(sources(config)[0], config.data.max_objects))
        raise
