"""Calibrates a model's scores on annotated images that it was not trained on, and writes the map into its card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.files import read_json, write_text
from coord_codec.weights import weights_digest
from coord_data.reading.read import read_source
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.records import ImageSource, answer_into, file_stamp
from coord_detect.answers.resumable_file import begin, discard
from coord_detect.console import is_first, say
from coord_detect.detection.image_sources import Sources, annotated_sources
from coord_detect.detection.session import session_settings
from coord_detect.model.card import as_trained, calibration_key, read_card
from coord_detect.model.checkpoints import CARD_FILE, locate_model
from coord_detect.settings.load import read_yaml
from coord_detect.settings.record import Settings

if TYPE_CHECKING:
    from coord_codec import Instance
    from coord_eval import Calibration


@dataclass(frozen=True)
class Seen:
    """The files that a model was trained on, as far as its run folder tells, and why not all are known."""

    paths: frozenset[Path]
    unknown: str = ""


def calibrate_model(
    model: Path, annotations: Path, images: Path | None, config: Settings, strict: bool, only: Sequence[str] = ()
) -> Calibration | None:
    """Answer annotated images, and fit the calibration of their scores into the model's card, on the first rank.

    With `only` answers are held to these names, and objects of others do not count.

    Raises:
        InputError: if the model has no card, images were trained on, or there are too few images or boxes
    """
    folder = locate_model(model)
    if read_card(folder) is None:
        raise InputError(f"{folder}: no {CARD_FILE}, in which the calibration would be kept; restore it from the run")
    geometry = as_trained(config, folder).data.geometry
    sources, truth = annotated_sources(annotations, images, geometry, config.evaluation.limit, strict)
    for note in sources.notes:
        say(f"  {note}")
    refuse_trained_images(sources, trained_images(folder))

    # Answers, with scores as they are: kept beside the card until the calibration is written.
    detector = AnsweringModel.load(model, config, sources.labels, only=only, calibrated=False)
    for note in detector.unknown_names():
        if strict:
            raise InputError(f"{note} (--strict is on)")
        say(f"note: {note}")
    stamps = {source.name: file_stamp(source.path) for source in sources.images}
    file = replace(begin(folder / "calibration.jsonl", session_settings(detector)), stamps=stamps)
    records, _ = answer_into(file, detector, sources.images, config.evaluation.batch_size)
    if not is_first():
        return None
    discard(file)
    if failed := [record for record in records if record["finish_reason"] == "error"]:
        first = f"{failed[0]['image']}: {failed[0]['error']}"
        say(f"  {counted(len(failed), 'image')} cannot be answered; the first, {first}")
    from coord_eval import ReportSettings, fit_calibration, score

    if only:
        truth = replace(truth, instances=tuple(_with_names(instance, detector.only) for instance in truth.instances))
    evaluation = score(truth, records, answers=detector.reading, report=ReportSettings(diagnose=False))
    section = detector.config.evaluation
    rests_on = {"annotations": annotations.name, "decoding": section.decoding[0].name, "views": list(section.views)}
    rests_on |= {"only": list(detector.forced)} if detector.forced else {}
    calibration = fit_calibration(evaluation, rests_on=rests_on)
    write_calibration(folder, calibration_key(section.decoding[0], section.views, detector.forced), calibration)
    return calibration


def _with_names(instance: Instance, names: Collection[str]) -> Instance:
    """Return an image with those of its objects that have one of some names."""
    return instance.model_copy(update={"objects": [item for item in instance.objects if item.desc in names]})


def write_calibration(folder: Path, key: str, calibration: Calibration) -> None:
    """Add a calibration to the card in a checkpoint's folder, atomically; all else in it stays."""
    path = folder / CARD_FILE
    values = read_json(path)
    fitted = {"weights": weights_digest(folder), **calibration.to_dict()}
    values["calibrations"] = {**values.get("calibrations", {}), key: fitted}
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def trained_images(folder: Path) -> Seen:
    """Return the images that a checkpoint was trained on, by the configuration of its run folder."""
    run = next((parent for parent in folder.resolve().parents[:2] if (parent / "config.yaml").is_file()), None)
    if run is None:
        return Seen(frozenset(), "the model is in no run folder")
    data: dict[str, Any] = read_yaml(run / "config.yaml").get("data") or {}
    sources = [data, *(data.get("sources") or ())]
    named = [(Path(s["annotations"]), s.get("images")) for s in sources if s.get("annotations")]
    if not named:
        return Seen(frozenset(), "" if not data.get("sources") else "it was trained on conversations")
    paths: set[Path] = set()
    unknown = ""
    for file, images in named:
        try:
            annotated = read_source(file, Path(images) if images else None, on_bad_box="drop_box").annotations
        except (InputError, OSError):
            unknown = f"its annotations {file} cannot be read here"
            continue
        root = Path(images) if images else annotated.root or file.parent
        paths |= {(root / instance.image).resolve() for instance in annotated.instances}
    return Seen(frozenset(paths), unknown)


def refuse_trained_images(sources: Sources, seen: Seen) -> None:
    """Raise `InputError` for images of the training, of which a model is surer; print if none are known."""
    if trained := trained_among(sources, seen):
        raise InputError(
            f"{counted(len(trained), 'image')} of {len(sources.images)} are among those that the model was trained on, "
            f"{trained[0].name} first: on them its scores say nothing of others; use images that it has not seen"
        )
    if seen.unknown:
        say(f"  which images the model was trained on is not known here: {seen.unknown}; these must be others")


def trained_among(sources: Sources, seen: Seen) -> list[ImageSource]:
    """Return the images that a model was trained on, by path or by content."""
    of_size: dict[int, list[Path]] = {}
    for path in filter(Path.is_file, seen.paths):
        of_size.setdefault(path.stat().st_size, []).append(path)

    def is_trained(path: Path) -> bool:
        if path.resolve() in seen.paths:
            return True
        alike = of_size.get(path.stat().st_size, []) if path.is_file() else []
        return bool(alike) and file_digest(path) in map(file_digest, alike)

    return [source for source in sources.images if is_trained(source.path)]


@cache
def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
