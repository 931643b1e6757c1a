"""`inspect`, and the same before every training: findings on the console, findings.json and inspect.html."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from coord_codec import InputError, Instance
from coord_codec.files import read_json
from coord_eval import oracle_predictions, score
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import RunError, say
from coord_trainer.data.formats.registry import recognise
from coord_trainer.data.formats.yolo import HeldOut, held_out
from coord_trainer.data.image_set import ImageSet
from coord_trainer.data.large.store import is_large
from coord_trainer.data.load import load_training, source_configs
from coord_trainer.inspection.examine import Examination, examine
from coord_trainer.inspection.numbers.findings import Finding, by_share, write_findings
from coord_trainer.inspection.numbers.raw import DataSource
from coord_trainer.inspection.page import write_page
from coord_trainer.inspection.shown import ModelView, with_model, without_model

_SHOWN = 12  # images on the page
_SCORED = 2000  # images whose ceilings are computed
FINDINGS_VERSION = 7
"""Raised when the same data gives other findings than before."""


def sources(config: RunConfig) -> tuple[DataSource, DataSource | None]:
    """Return the training set and, where one is named, the held-out set of a configuration."""
    data = config.data
    more = (data.format, data.allow_outside)
    heldout = data.heldout_annotations and DataSource(data.heldout_annotations, data.heldout_images, *more)
    return DataSource(data.annotations, data.images, *more), heldout or None


def inspect_data(config: RunConfig, out: Path, *, with_model: bool, strict: bool) -> Examination:
    """Examine the data of a configuration, print the findings, and write them to the folder `out`.

    Args:
        config: names the data
        out: created if missing
        with_model: show images and tokens as the model of the configuration is given them; also shown where they
            vary from epoch to epoch
        strict: warnings fail as errors do

    Raises:
        InputError: the annotations cannot be read.
        RunError: a finding would spoil training.
    """
    source, heldout = sources(config)
    found = examine(source, config.data.max_objects, heldout or _own_heldout(source))
    usable = [i for i in found.annotations.instances if i.image in _readable(found)]
    view = _model_view(config, (with_model or config.data.varies) and bool(usable))
    if view is not None:
        found = found.with_findings(token_findings(view))
    write_all(config, found, usable, view, out)
    say_findings(found)
    say(f"page: {out / 'inspect.html'}")
    refuse(found.findings, strict, f"see {out}")
    return found


def _own_heldout(source: DataSource) -> HeldOut | None:
    """Return the images that a YOLO data.yaml holds out itself, and print what is to know of them."""
    if source.format not in ("auto", "yolo") or not source.annotations.exists():
        return None
    if source.format == "auto" and recognise(source.annotations)[0] != "yolo":
        return None
    found = held_out(source.annotations, source.images)
    for note in found.notes if found else ():
        say(f"note: {note}")
    return found if found and found.names else None


def _readable(found: Examination) -> set[str]:
    return {name for name, file in zip(found.raw.files, found.files, strict=True) if not file.fault}


def _model_view(config: RunConfig, wanted: bool) -> ModelView | None:
    """Return what the model is given; None where none is wanted, or no image of the set can be trained on."""
    if not wanted:
        return None
    try:
        images = load_training(config).image_sets[0]
    except InputError as error:
        say(f"  nothing can be shown as the model is given it: {error}")
        return None
    return with_model(config, images, _spread(len(images)))


def _spread(count: int) -> list[int]:
    """Return indices of the images that are shown, from all over the set."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(_SHOWN, count)).tolist()}) if count else []


def write_all(
    config: RunConfig, found: Examination, usable: Sequence[Instance], view: ModelView | None, out: Path
) -> None:
    """Write findings.json and inspect.html into a folder, which is made if missing."""
    out.mkdir(parents=True, exist_ok=True)
    write_findings(out / "findings.json", found.findings)
    chosen = [usable[i] for i in _spread(len(usable))]
    shown = view.shown if view is not None else without_model(config, chosen, found.root)
    write_page(out / "inspect.html", found, shown, ceilings(config, found), view)


def ceilings(config: RunConfig, found: Examination) -> dict[str, float]:
    """Return the AP of perfect answers: against the objects they may name, and against all that were given.

    The first loses to quantisation alone; the second also to refused records and to data.max_objects.
    """
    kept = found.annotations.select(found.annotations.instances[:_SCORED])
    limited = oracle_predictions(kept, markers=config.data.markers, max_objects=config.data.max_objects)
    try:
        of_kept = score(kept, oracle_predictions(kept, markers=config.data.markers)).coco["AP"]
        given = found.annotations if len(found.annotations.instances) <= _SCORED else kept
        return {"Quantisation ceiling": of_kept, "Ceiling of all given objects": score(given, limited).coco["AP"]}
    except InputError:  # sizes that nobody states
        return {}


def token_findings(view: ModelView) -> list[Finding]:
    """Return what only a tokenizer can find: samples beyond the context, class names that fall to pieces."""
    findings = []
    if long := [length for length in view.lengths if length > view.limit]:
        message = f"{len(long)} of {len(view.lengths)} samples have more tokens than training.max_length={view.limit}"
        fix = f"training.max_length={max(long)}, or a lower data.max_objects or data.max_pixels"
        severity = by_share(len(long), len(view.lengths))
        findings.append(Finding("long_samples", severity, message, f"the longest {max(long)}", len(long), fix))
    if split := {name: n for name, n in view.pieces.items() if n > 3 * len(name.split())}:
        shown = ", ".join(f"{name!r} {n}" for name, n in sorted(split.items(), key=lambda item: -item[1])[:10])
        message = f"{len(split)} class names are split into more than three tokens a word"
        findings.append(Finding("split_names", "note", message, shown, len(split), "use common words where you can"))
    return findings


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


def check_before_training(config: RunConfig, train: ImageSet, heldout: ImageSet | None, cache: Path) -> list[Finding]:
    """Print the findings about a run's data, a line each; they are kept by digest and not made again.

    Of a large file an even part is examined.

    Args:
        config: the run
        train: its training set
        heldout: the set that is scored, None for none
        cache: folder of earlier findings, made when there is something to keep

    Raises:
        RunError: with `data.strict`, for errors and warnings.
    """
    whole, other = sources(config)
    source = _examined(whole, train, config)
    if source is None:
        say(f"  {whole.annotations} is too large to be examined before every training; run `inspect` on a part of it")
        return []
    scored = _examined(other, heldout, config) if other is not None and heldout is not None else None
    digests = [found.digest for found in (train, heldout) if found is not None]
    key = hashlib.sha256(f"{FINDINGS_VERSION} {config.data.max_objects} {digests}".encode())
    for part in (source, scored):
        if part is not None and part.annotations.is_file():  # of a folder the digests must do
            key.update(part.annotations.read_bytes())
    kept = cache / f"{key.hexdigest()[:16]}.json"
    if kept.is_file():
        findings = [Finding(**row) for row in read_json(kept)]
    else:
        found = examine(source, config.data.max_objects, scored)
        # A name that stands once in a part may stand often in the whole.
        findings = [f for f in found.findings if train.part is None or f.code != "rare_classes"]
        cache.mkdir(parents=True, exist_ok=True)
        write_findings(kept, findings)
    if train.part is not None:
        say(f"  {whole.annotations} is large: what is found is of an even part of it, {train.part}")
    for finding in findings:
        say(f"  {finding}")
    if config.data.strict:
        refuse(findings, True, "or train without --strict (data.strict)")
    return findings


def _examined(source: DataSource, images: ImageSet, config: RunConfig) -> DataSource | None:
    """Return what is examined of a source: all of it, the part of a large file, or None where there is no part."""
    large = is_large(source.annotations, config.data)
    if large is None:
        return source
    return None if images.part is None else DataSource(images.part, images.root, large[1], allow_outside=True)


@contextmanager
def explain_unusable(config: RunConfig) -> Iterator[None]:
    """Where a set cannot be used at all, print what the doctor finds in it before the error goes on."""
    try:
        yield
    except InputError:
        for _, alone in source_configs(config):
            with suppress(InputError, OSError):
                say_findings(examine(sources(alone)[0], config.data.max_objects))
        raise
