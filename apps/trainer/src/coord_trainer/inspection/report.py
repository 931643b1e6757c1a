"""Inspects data, on request and before every training: findings on the console, findings.json and inspect.html."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from coord_codec import InputError, Instance, RunError
from coord_codec.files import read_json
from coord_data.classes import absent_classes, class_categories
from coord_data.formats.registry import open_source
from coord_data.formats.yolo import HeldOut, held_out
from coord_data.image_set import ImageSet
from coord_data.inspection.examine import Examination, examine
from coord_data.inspection.finding import Finding, by_share, write_findings
from coord_data.inspection.numbers.raw import DataSource
from coord_data.large.store import is_large
from coord_eval import oracle_predictions, score
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import say
from coord_trainer.data.load import load_training, source_configs
from coord_trainer.inspection.page import write_page
from coord_trainer.inspection.shown import ModelView, with_model, without_model

_SHOWN = 12  # images on the page
_SCORED = 2000  # images at most from which the ceilings are computed
FINDINGS_VERSION = 9
"""Incremented when the same data gives other findings than before."""


def sources(config: RunConfig) -> tuple[DataSource, DataSource | None]:
    """Return the training set of a configuration, and its held-out set or None."""
    data = config.data
    options = (data.format, data.allow_outside)
    heldout = data.heldout_annotations and DataSource(data.heldout_annotations, data.heldout_images, *options)
    return DataSource(data.annotations, data.images, *options), heldout or None


def inspect_data(config: RunConfig, out: Path, *, with_model: bool, strict: bool) -> Examination:
    """Examine the data of a configuration, print the findings, and write them to the folder `out`.

    Args:
        config: configuration with the data to examine
        out: output folder, created if missing
        with_model: show images and tokens as the configured model receives them; always done for samples that vary
            from epoch to epoch
        strict: fail for warnings as for errors

    Raises:
        InputError: the annotations cannot be read.
        RunError: a finding would spoil training.
    """
    source, heldout = sources(config)
    examination = examine(source, config.data.max_objects, heldout or _own_heldout(source))
    if config.data.classes is not None:
        stated = examination.annotations.categories
        class_categories(stated, config.data.classes, str(source.annotations))
        for note in absent_classes(stated, config.data.classes):
            say(f"note: {note}")
        say("note: the findings are of all classes of the file, also of those that data.classes leaves out")
    usable = [i for i in examination.annotations.instances if i.image in _readable(examination)]
    view = _model_view(config, (with_model or config.data.varies) and bool(usable))
    if view is not None:
        examination = examination.with_findings(token_findings(view))
    write_all(config, examination, usable, view, out)
    say_findings(examination)
    say(f"page: {out / 'inspect.html'}")
    refuse(examination.findings, strict, f"see {out}")
    return examination


def _own_heldout(source: DataSource) -> HeldOut | None:
    """Return the held-out images of a YOLO data.yaml, and print the notes about them."""
    if source.format not in ("auto", "yolo") or not source.annotations.exists():
        return None
    if open_source(source.annotations, source.format).format != "yolo":
        return None
    heldout = held_out(source.annotations, source.images)
    for note in heldout.notes if heldout else ():
        say(f"note: {note}")
    return heldout if heldout and heldout.names else None


def _readable(examination: Examination) -> set[str]:
    """Return the images that can be shown; of a large set, images that were not read may be missing."""
    files = zip(examination.raw.files, examination.files, strict=True)
    return {name for name, file in files if file.size is not None and not file.fault}


def _model_view(config: RunConfig, wanted: bool) -> ModelView | None:
    """Return the model inputs; None if they are not wanted, or if no image of the set can be trained on."""
    if not wanted:
        return None
    try:
        images = load_training(config).image_sets[0]
    except InputError as error:
        say(f"  the images cannot be shown as the model receives them: {error}")
        return None
    return with_model(config, images, _spread(len(images)))


def _spread(count: int) -> list[int]:
    """Return evenly spaced indices of the images to show."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(_SHOWN, count)).tolist()}) if count else []


def write_all(
    config: RunConfig, examination: Examination, usable: Sequence[Instance], view: ModelView | None, out: Path
) -> None:
    """Write findings.json and inspect.html to a folder, which is created if missing."""
    out.mkdir(parents=True, exist_ok=True)
    write_findings(out / "findings.json", examination.findings)
    chosen = [usable[i] for i in _spread(len(usable))]
    shown = view.shown if view is not None else without_model(config, chosen, examination.root)
    write_page(out / "inspect.html", examination, shown, ceilings(config, examination), view)


def ceilings(config: RunConfig, examination: Examination) -> dict[str, float]:
    """Return the AP of perfect answers against the usable objects, and against all objects of the annotations.

    Quantisation lowers the first; refused records and data.max_objects lower the second too.
    """
    kept = examination.annotations.select(examination.annotations.instances[:_SCORED])
    limited = oracle_predictions(kept, markers=config.data.markers, max_objects=config.data.max_objects)
    try:
        usable = score(kept, oracle_predictions(kept, markers=config.data.markers)).coco["AP"]
        reference = examination.annotations if len(examination.annotations.instances) <= _SCORED else kept
        return {"Quantisation ceiling": usable, "Ceiling of all given objects": score(reference, limited).coco["AP"]}
    except InputError:  # unknown image sizes
        return {}


def token_findings(view: ModelView) -> list[Finding]:
    """Report samples that exceed the maximum length, and class names that are split into many tokens."""
    findings = []
    if long := [length for length in view.lengths if length > view.limit]:
        message = f"{len(long)} of {len(view.lengths)} samples have more tokens than training.max_length={view.limit}"
        fix = f"training.max_length={max(long)}, or a lower data.max_objects or data.max_pixels"
        severity = by_share(len(long), len(view.lengths))
        findings.append(Finding("long_samples", severity, message, f"the longest has {max(long)}", len(long), fix))
    if split := {name: n for name, n in view.pieces.items() if n > 3 * len(name.split())}:
        listed = ", ".join(f"{name!r} {n}" for name, n in sorted(split.items(), key=lambda item: -item[1])[:10])
        message = f"{len(split)} class names are split into more than three tokens per word"
        findings.append(Finding("split_names", "note", message, listed, len(split), "use common words where possible"))
    return findings


def say_findings(examination: Examination) -> None:
    """Print a line for each finding."""
    boxes = sum(len(instance.targets) for instance in examination.annotations.instances)
    say(f"{len(examination.raw.files)} images, {len(examination.raw)} boxes, {boxes} of them usable")
    for finding in examination.findings:
        say(f"  {finding}")
    if not examination.findings:
        say("  nothing wrong was found")


def refuse(findings: Sequence[Finding], strict: bool, where: str) -> None:
    """Raise a RunError for findings that would spoil training; with `strict`, for warnings as well."""
    counts = Counter(finding.severity for finding in findings)
    if counts["error"] or (strict and counts["warning"]):
        listed = " and ".join(f"{counts[s]} {s}{'s' * (counts[s] > 1)}" for s in ("error", "warning") if counts[s])
        raise RunError(f"{listed} in the data would spoil training; correct the data first, {where}")


def check_before_training(config: RunConfig, train: ImageSet, heldout: ImageSet | None, cache: Path) -> list[Finding]:
    """Print the findings about a run's data, one line each; findings are cached by digest.

    Of a large file only an evenly spaced part is examined.

    Args:
        config: configuration of the run
        train: training set of the run
        heldout: held-out set of the run, None without one
        cache: folder of cached findings, created when needed

    Raises:
        RunError: with `data.strict`, for errors and warnings.
    """
    train_source, heldout_source = sources(config)
    source = _examined(train_source, train, config)
    if source is None:
        say(f"  {train_source.annotations} is too large to examine before training; run `inspect` on a part of it")
        return []
    heldout_part = (
        _examined(heldout_source, heldout, config) if heldout_source is not None and heldout is not None else None
    )
    digests = [images.digest for images in (train, heldout) if images is not None]
    key = hashlib.sha256(f"{FINDINGS_VERSION} {config.data.max_objects} {digests}".encode())
    for part in (source, heldout_part):
        if part is not None and part.annotations.is_file():  # a folder is identified by the digests alone
            key.update(part.annotations.read_bytes())
    cached = cache / f"{key.hexdigest()[:16]}.json"
    if cached.is_file():
        findings = [Finding(**row) for row in read_json(cached)]
    else:
        examination = examine(source, config.data.max_objects, heldout_part)
        # A class that occurs once in a part may occur often in the whole file.
        findings = [f for f in examination.findings if train.part is None or f.code != "rare_classes"]
        cache.mkdir(parents=True, exist_ok=True)
        write_findings(cached, findings)
    if train.part is not None:
        say(f"  {train_source.annotations} is large: only an evenly spaced part of it was examined, {train.part}")
    for finding in findings:
        say(f"  {finding}")
    if config.data.strict:
        refuse(findings, True, "or train without --strict (data.strict)")
    return findings


def _examined(source: DataSource, images: ImageSet, config: RunConfig) -> DataSource | None:
    """Return the data to examine: all of it, the part of a large file, or None for a large file without a part."""
    large = is_large(source.annotations, config.data)
    if large is None:
        return source
    return None if images.part is None else DataSource(images.part, images.root, large.format, allow_outside=True)


@contextmanager
def explain_unusable(config: RunConfig) -> Iterator[None]:
    """Print the findings about a data set that cannot be used at all, and raise its error again."""
    try:
        yield
    except InputError:
        for _, single in source_configs(config):
            with suppress(InputError, OSError):
                say_findings(examine(sources(single)[0], config.data.max_objects))
        raise
