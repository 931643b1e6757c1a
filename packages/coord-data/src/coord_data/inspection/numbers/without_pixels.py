"""Findings that the annotations alone give, without a look at an image: what `inspect` tells, and `prepare` too."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from coord_codec import AnnotationSet
from coord_codec.counts import counted
from coord_codec.files import read_json
from coord_data.finding import Finding
from coord_data.formats.annotation_format import Evidence
from coord_data.formats.coco import SUMMARY
from coord_data.inspection.numbers.class_numbers import shifted_classes
from coord_data.reading.image_set import ImageSet
from coord_data.sources.raw_boxes import ClassNumbers, class_numbers_of_coco

_CONFIDENCE = re.compile(r"\bwith a sixth number\b|\b(?:field|columns?)\b.*\b(?:score|scores|confidence|conf|prob)\b")
"""What readers note of a field or column that they do not read, where it is a confidence."""


REREAD = "read_as"
"""Key of a summary with the reading that replaced the boxes when they were prepared."""


def findings_without_pixels(evidence: Evidence) -> list[Finding]:
    """Return class numbers beside their names, categories of one name, and predictions in place of annotations.

    Example:
        >>> import json, pathlib, tempfile
        >>> from coord_data.reading.read import read_by
        >>> from coord_data.reading.rules import ReadingRules
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.json"
        >>> images = [{"id": 1, "file_name": "a.jpg", "width": 64, "height": 48}]
        >>> boxes = [{"image_id": 1, "category_id": 2, "bbox": [8, 8, 16, 16]}]
        >>> categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}]
        >>> document = {"images": images, "annotations": boxes, "categories": categories}
        >>> _ = file.write_text(json.dumps(document))
        >>> [finding.code for finding in findings_without_pixels(read_by(file, ReadingRules()))]
        ['same_names']
    """
    raw = evidence.raw
    return findings_of_numbers(evidence.annotations, evidence.named, len(raw), raw.class_numbers, evidence.notes)


def findings_of_set(loaded: ImageSet) -> list[Finding]:
    """Return `findings_without_pixels` of a set that was loaded, however many images it has."""
    if loaded.evidence is not None:
        return findings_without_pixels(loaded.evidence)
    annotations, classes = loaded.annotations, None
    if loaded.part is not None and any(problem.field.endswith("category_id") for problem in annotations.problems):
        classes = class_numbers_of_coco(loaded.part.document)  # of evenly drawn images
    return findings_of_numbers(annotations, Path(loaded.name), int(loaded.target_counts.sum()), classes)


def findings_of_numbers(
    annotations: AnnotationSet, named: Path, boxes: int, classes: ClassNumbers | None, notes: Sequence[str] = ()
) -> list[Finding]:
    """Return `findings_without_pixels` of records of which no evidence is kept."""
    return [
        *shifted_classes(classes),
        *_same_names(annotations),
        *_predictions([*notes, *annotations.notes], annotations.notes, boxes),
        *_reread(named, boxes),
    ]


def _same_names(annotations: AnnotationSet) -> list[Finding]:
    """Report categories that have the name of another one."""
    ids = defaultdict(list)
    for category in annotations.categories:
        ids[category.name].append(category.id)
    shared = {name: numbers for name, numbers in ids.items() if len(numbers) > 1}
    if not shared:
        return []
    name, numbers = next(iter(shared.items()))
    message = f"{counted(len(shared), 'name belongs', 'names belong')} to several categories; their objects become one "
    message += "class, in training and in scores"
    evidence = f"the first: {name!r} is the name of the categories {', '.join(map(str, numbers))}"
    count = sum(map(len, shared.values()))
    return [Finding("same_names", "warning", message, evidence, count, "give each category a name of its own")]


def _predictions(notes: Sequence[str], counts: Mapping[str, int], boxes: int) -> list[Finding]:
    """Report boxes with a confidence, as a detector writes them."""
    found = next((note for note in notes if _CONFIDENCE.search(note)), None)
    if found is None:
        return []
    count = counts.get(found, boxes)
    message = "the boxes have confidences, as predictions have: a model would learn the mistakes of another one"
    evidence = f"{count} {found}" if found in counts else found
    fix = "use annotations that people made or checked; if these are, remove the confidences"
    return [Finding("predictions", "warning", message, evidence, count, fix)]


def _reread(named: Path, boxes: int) -> list[Finding]:
    """Report prepared boxes that are not as their source states them."""
    prepared = [named.with_suffix(SUMMARY)] if named.suffix == ".jsonl" else sorted(named.glob(f"*{SUMMARY}"))
    for file in prepared:
        summary = read_json(file) if file.is_file() else None
        if isinstance(summary, Mapping) and summary.get(REREAD):
            message = f"the boxes were read as {summary[REREAD]} when they were prepared, unlike their source"
            return [Finding("reread", "note", message, file.name, boxes, "look at the page")]
    return []
