"""Inspects the data of a run: what `coord_data` finds, and what only the configuration or a model tells.

On request it writes findings.json and inspect.html; before every training it prints the findings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from coord_codec import InputError
from coord_codec.counts import counted
from coord_data import Evidence
from coord_data.finding import Finding, by_share
from coord_data.formats.registry import open_source
from coord_data.inspection.examine import Examination, evidence_of, examination_of, spread_indices
from coord_data.inspection.find_data import examine_named
from coord_data.inspection.report import refuse, say_classes, say_findings, write_report
from coord_data.inspection.rules import InspectionRules
from coord_data.reading.image_set import ImageSet
from coord_data.reading.rules import ReadingRules
from coord_detect.console import say
from coord_eval import oracle_predictions, score
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.load import load_training, rules_of, source_configs
from coord_trainer.inspection.page import model_page
from coord_trainer.inspection.shown import ModelView, ShownImage, with_model, without_model

_SCORED = 2000  # images at most from which the ceilings are computed


def _rules(config: RunConfig, *, heldout: bool = False, min_side: int = 0) -> InspectionRules:
    """Return how the training set of a configuration is read for its inspection, or the held-out set."""
    data = rules_of(config)
    kept = {"format", "fields", "allow_outside", "read_as", "max_side_ratio", "max_objects"}
    images = data.heldout_images if heldout else data.images
    return InspectionRules(images=images, min_side=min_side, **{name: getattr(data, name) for name in kept})


def inspect_data(
    config: RunConfig, out: Path, *, with_model: bool, strict: bool, sample: int | None = None, min_side: int = 0
) -> Examination:
    """Examine the data of a configuration, print the findings, and write them to the folder `out`.

    Args:
        config: configuration with the data to examine
        out: output folder, created if missing
        with_model: show images and tokens as the configured model receives them; always done for samples that vary
            from epoch to epoch
        strict: fail for warnings as for errors
        sample: index of the training sample whose tokens are printed, and shown first on the page; None for none
        min_side: images with a side of fewer pixels are left out, and counted

    Raises:
        InputError: the annotations cannot be read, or there is no such sample.
        RunError: a finding would spoil training.
    """
    examination = _examined(config, min_side)
    say_classes(examination, config.data.classes, str(config.data.annotations))
    wanted = sample is not None or with_model or config.data.varies
    view = _model_view(config, wanted and bool(examination.shown), sample)
    if view is not None:
        examination = examination.with_findings(token_findings(view))
        shown = view.shown
    else:
        shown = tuple(without_model(config, examination.shown, examination.root))
    page = model_page(shown, ceilings(config, examination), view)
    annotations = "generated shapes" if config.data.annotations is None else config.data.annotations.name
    write_report(examination, out, replace(page, facts={"annotations": annotations}))
    refuse(examination.findings, strict, f"see {out}")
    return examination


def _examined(config: RunConfig, min_side: int) -> Examination:
    """Return the examination of the data of a configuration, compared with what is held out."""
    data, rules = config.data, _rules(config, min_side=min_side)
    assert data.annotations is not None
    heldout = data.heldout_annotations
    held = None if heldout is None else evidence_of(heldout, _rules(config, heldout=True))
    return examine_named(open_source(data.annotations, data.format, data.fields), rules, held)


def _model_view(config: RunConfig, wanted: bool, sample: int | None) -> ModelView | None:
    """Return the model inputs, first those of `sample`, whose tokens are printed.

    None if they are not wanted, or if no image of the set can be trained on.
    """
    if not wanted:
        return None
    try:
        images = load_training(config).image_sets[0]
    except InputError as error:
        say(f"  the images cannot be shown as the model receives them: {error}")
        return None
    spread = spread_indices(len(images))
    if sample is None:
        return with_model(config, images, spread)
    if not 0 <= sample < len(images):
        raise InputError(f"--sample: expected 0 to {len(images) - 1}, found {sample}")
    view = with_model(config, images, [sample, *(i for i in spread if i != sample)])
    for line in token_lines(view.shown[0], view.limit):
        say(line)
    return view


def token_lines(shown: ShownImage, limit: int) -> Iterator[str]:
    """Yield a line for each token of a sample: whether it is supervised, its weight, role, loss terms and text."""
    supervised = sum(bool(token.terms) for token in shown.tokens)
    beyond = f", of which training.max_length={limit} cuts off those marked beyond"
    cut = any(token.role == "beyond" for token in shown.tokens)
    objects = counted(len(shown.truth), "object")
    yield f"{shown.name}: {objects}, {counted(supervised, 'supervised token')}{beyond * cut}"
    yield f"{'supervised':10}  {'weight':>6}  {'role':14}  {'loss terms':22}  token"
    for token in shown.tokens:
        mark = "yes" if token.terms else "no"
        yield f"{mark:10}  {token.weight:6.3g}  {token.role:14}  {', '.join(token.terms):22}  {token.text!r}"


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
        verb = "has" if len(long) == 1 else "have"
        message = f"{len(long)} of {counted(len(view.lengths), 'sample')} {verb} more tokens than training.max_length="
        message += str(view.limit)
        fix = f"training.max_length={max(long)}, or a lower data.max_objects or data.max_pixels"
        severity = by_share(len(long), len(view.lengths))
        findings.append(Finding("long_samples", severity, message, f"the longest has {max(long)}", len(long), fix))
    if split := {name: n for name, n in view.pieces.items() if n > 3 * len(name.split())}:
        listed = ", ".join(f"{name!r} {n}" for name, n in sorted(split.items(), key=lambda item: -item[1])[:10])
        verb = "is" if len(split) == 1 else "are"
        message = f"{counted(len(split), 'class name')} {verb} split into more than three tokens per word"
        findings.append(Finding("split_names", "note", message, listed, len(split), "use common words where possible"))
    return findings


def check_before_training(config: RunConfig, train: ImageSet, heldout: ImageSet | None) -> list[Finding]:
    """Print the findings about a run's data, one line each, of a large file about evenly spaced records.

    Raises:
        RunError: with `data.strict`, for errors and warnings.
    """
    evidence = _evidence(train, config)
    held = None if heldout is None else _evidence(heldout, config, heldout=True)
    examination = examination_of(evidence, InspectionRules(max_objects=config.data.max_objects), heldout=held)
    # A class that occurs once in a part may occur often in the whole file.
    findings = [f for f in examination.findings if train.part is None or f.code != "rare_classes"]
    if train.part is not None:
        say(f"  {config.data.annotations} is large: only an evenly spaced part of it was examined, {train.part.path}")
    for finding in findings:
        say(f"  {finding}")
    if config.data.strict:
        refuse(findings, True, "or train without --strict (data.strict)")
    return findings


def _evidence(images: ImageSet, config: RunConfig, *, heldout: bool = False) -> Evidence:
    """Return what a set was read from, of a large file a part of it."""
    if images.evidence is not None:
        return images.evidence
    if images.part is not None:
        return evidence_of(images.part, ReadingRules(images=images.root, allow_outside=True))  # it is read as stated
    annotations = config.data.heldout_annotations if heldout else config.data.annotations
    assert annotations is not None
    return evidence_of(annotations, _rules(config, heldout=heldout))


@contextmanager
def explain_unusable(config: RunConfig) -> Iterator[None]:
    """Print the findings about a data set that cannot be used at all, and raise its error again."""
    try:
        yield
    except InputError:
        for _, single in source_configs(config):
            with suppress(InputError, OSError):
                data = single.data
                if data.annotations is None:  # conversations, of which there are no findings
                    continue
                say_findings(examination_of(data.annotations, _rules(single)))
        raise
