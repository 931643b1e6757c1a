"""`inspect`: findings on the console, findings.json and inspect.html."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import RunError, say
from coord_trainer.inspection.examine import DataSource, Examination, examine
from coord_trainer.inspection.findings import write_findings


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
    refuse(found, strict, f"see {out}")
    return found


def say_findings(found: Examination) -> None:
    """Print a line for each finding."""
    boxes = sum(len(instance.targets) for instance in found.annotations.instances)
    say(f"{len(found.raw.files)} images, {len(found.raw)} boxes, {boxes} of them usable")
    for finding in found.findings:
        say(f"  {finding}")
    if not found.findings:
        say("  nothing wrong was found")


def refuse(found: Examination, strict: bool, where: str) -> None:
    """Raise a RunError for findings that would spoil training; with `strict`, for warnings as well."""
    counts = Counter(finding.severity for finding in found.findings)
    if counts["error"] or (strict and counts["warning"]):
        told = " and ".join(f"{counts[s]} {s}s" for s in ("error", "warning") if counts[s])
        raise RunError(f"{told} in the data: training on it would be spoiled; mend them first, {where}")
