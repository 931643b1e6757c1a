"""Reader of RefCOCO, RefCOCO+ and RefCOCOg: phrases (`refs*.json`) that refer to COCO's `instances.json` beside it.

Each phrase becomes a record with one object, whose description is the phrase; an image with several phrases has several
records, as `coord_eval.score_expression_files` expects. The phrases are published as a Python pickle, which can run any
code when it is opened: it is refused, with the command that turns it into JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from coord_codec import InputError, read_annotations
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.coco import example_document
from coord_data.formats.stated_fields import with_fields
from coord_data.looking.image_paths import find_root
from coord_data.sources.raw import RawImage, RawObject, Reading, as_json, as_list, check, images_of
from coord_data.sources.source import Source

_LISTS = ("annotations", "images")
_PICKLES = ("refs*.p", "refs*.pkl")


def recognise(source: Source) -> bool:
    """Return whether a source is a list of phrases, a folder with one, or the pickle."""
    if source.is_dir:
        return bool(source.glob("refs*.json", *_PICKLES)) and (source.path / "instances.json").is_file()
    return source.path.match("refs*.p") or {"ann_id", "sentences"} <= set(source.record or {})


def read(source: Source, images: Path | None) -> Reading:
    """Read the phrases of a file, or of a folder with one."""
    files = source.glob("refs*.json") or ([source.path] if not source.is_dir else source.glob(*_PICKLES))
    if not files:
        raise InputError(f"{source.path}: expected refs*.json in this folder, found none")
    path = files[0]
    if len(files) > 1 and path.suffix == ".json":
        raise InputError(f"{source.path}: holds {' and '.join(p.name for p in files)}; name one of the files")
    if path.suffix in (".p", ".pkl"):
        raise InputError(
            f'{path}: a Python pickle can run any code, so it is not opened; if you trust it: python -c "import json, '
            f"pickle; json.dump(pickle.load(open('{path}', 'rb')), open('refs.json', 'w'))\""
        )
    folder = path.parent
    instances = folder / "instances.json"
    if not instances.is_file():
        raise InputError(
            f"{path}: the phrases refer to COCO annotations; put instances.json, which has them, beside the file"
        )
    document = source.file(instances).document
    check(isinstance(document, Mapping), f"{instances}: expected COCO JSON", document)
    read_annotations({**document, "annotations": []})  # raises if it is not COCO
    root = find_root(images, folder / "images", folder)
    lists = ([row for row in as_list(document.get(name)) if isinstance(row, Mapping)] for name in _LISTS)
    boxes, rows = ({row["id"]: row for row in rows if isinstance(row.get("id"), int | str)} for rows in lists)
    refs = list(source.file(path).records())
    count = Counter(str(ref["split"]) for _, ref in refs if isinstance(ref, Mapping) and ref.get("split"))
    listed = ", ".join(f"{name} {number}" for name, number in count.items())
    note = f"{path}: splits are read together, in objects: {listed}; the key `split` of each record names its own"
    return Reading(images_of(refs, partial(_phrases, boxes, rows)), root, (note,) * (len(count) > 1))


def _phrases(boxes: Mapping[Any, Any], images: Mapping[Any, Any], ref: Any, where: str) -> Iterator[RawImage]:
    try:
        annotation, sentences = boxes[ref["ann_id"]], [str(s.get("raw") or s["sent"]) for s in ref["sentences"]]
        image = images[annotation["image_id"]]
        x, y, w, h = map(float, annotation["bbox"])
        name, size = image["file_name"], (int(image["width"]), int(image["height"]))
        check(isinstance(name, str), "file_name", name)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise InputError(f"expected ann_id of an annotation in instances.json, found {as_json(ref)}") from None
    for phrase in sentences:
        outlines = annotation.get("segmentation") or ()
        box = RawObject(phrase.strip(), (x, y, x + w, y + h), where, outlines=outlines)
        box = box.tried(partial(with_fields, fields=annotation, order="xywh", unit="pixels"))
        yield RawImage(name, where, [box], size, extra={"query": phrase.strip(), "split": ref.get("split")})


def _example(**annotation: object) -> Example:
    refs = [{"ann_id": 1, "image_id": 1, "split": "train", "sentences": [{"raw": "cat"}]}]
    instances = example_document({"file_name": "a.jpg"}, **annotation)
    return Example({"refs.json": json.dumps(refs), "instances.json": instances}, "refs.json")


FORMAT = AnnotationFormat(
    "refcoco",
    "RefCOCO",
    "phrases in `refs*.json` that refer to COCO's `instances.json` beside it",
    {"box": _example(), "polygon": _example(segmentation=[[20, 10, 60, 10, 60, 40, 20, 40]])},
    recognise,
    read,
)
