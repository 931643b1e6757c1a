"""Applies decisions to annotations: a new file in the format of the old one, and a list of what was changed and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from coord_codec import AnnotationSet, Object, geometry_of, read_annotations
from coord_codec.files import InputError, write_text
from coord_codec.geometry.base import Box
from coord_codec.instance_file import instance_line
from coord_codec.json_file import JsonFile
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.digests import digest_of_truth
from coord_eval.intake.ground_truth import load_ground_truth
from coord_eval.intake.joining import IdIndex
from coord_eval.review.decisions import Decision, Decisions, read_decisions
from coord_eval.review.findings import rows_by_place

_OF_OLD_BOX = ("segmentation", "keypoints", "num_keypoints", "rotated_box", "rotation")
"""Fields of a COCO annotation that belong to its box, and are dropped if that changes."""


@dataclass(frozen=True)
class Correction:
    """What decisions made of annotations.

    Attributes:
        file: the corrected annotations
        list: the list of changes
        counts: number of decisions by choice, and of labels that were changed
    """

    file: Path
    list: Path
    counts: Mapping[str, int]


def apply_decisions(decisions: str | Path, ground_truth: str | Path, out: str | Path) -> Correction:
    """Write corrected annotations, and beside them `OUT.changes.json`: every change with its reason.

    COCO JSON stays COCO JSON with all fields that are not about the changed boxes; instance JSON lines stay such lines,
    of which only the changed ones are written anew. Neither file is written over another.

    Args:
        decisions: file of decisions
        ground_truth: the annotations that were reviewed; their digest must be the one that the decisions name
        out: file for the corrected annotations

    Raises:
        InputError: if the decisions are about other annotations or cannot be applied, such as a box in place of a
            polygon, or a file exists already
        OSError: if a file cannot be written
    """
    out, changes_file = Path(out), Path(f"{out}.changes.json")
    for path in (out, changes_file):
        if path.exists():
            raise InputError(f"--out: {path} exists, and nothing is written over it; name another file")
    chosen = read_decisions(decisions)
    file = JsonFile(ground_truth)
    annotations = read_annotations(file)
    annotations.check(training=False)
    truth = load_ground_truth(annotations)
    if digest_of_truth(truth) != chosen.ground_truth:
        raise InputError(
            f"{decisions}: these decisions are about other annotations than {ground_truth}, or it has changed since; "
            "name the reviewed file, or review it again"
        )
    plan = _Plan(truth, chosen, str(decisions))
    text = _coco(file, annotations, plan) if annotations.table is not None else _instances(file, annotations, plan)
    counts = Counter(item.decision for item in chosen.decisions)
    listed = {
        "ground_truth": {"file": file.path.name, "digest": chosen.ground_truth},
        "review": chosen.review,
        "counts": dict(counts),
        "changes": plan.changes,
    }
    write_text(out, text)
    write_text(changes_file, json.dumps(listed, ensure_ascii=False, indent=1) + "\n")
    return Correction(out, changes_file, {**counts, "changed": len(plan.changes)})


class _Plan:
    """What happens to each label, by its row in the ground truth, and what is added to each image."""

    def __init__(self, truth: GroundTruth, chosen: Decisions, where: str) -> None:
        self.truth = truth
        self.of_row: dict[int, Decision] = {}
        self.added: dict[int, list[Decision]] = {}
        self.changes: list[dict[str, Any]] = []
        images = IdIndex(truth)
        rows = rows_by_place(truth)
        for i, item in enumerate(chosen.decisions):
            image = images.by_id(item.image_id)
            if image is None:
                raise InputError(f"{where}: decisions[{i}]: image_id: {item.image_id!r} is not in the ground truth")
            if item.decision in ("keep", "later"):
                continue
            if item.object is None:
                self.added.setdefault(image, []).append(item)
                continue
            n = rows.get((image, item.object))
            name = None if n is None else truth.categories[truth.category_N[n]]
            if n is None or (item.label is not None and item.label.desc != name):
                found = repr(name) if name else "no such label"
                raise InputError(
                    f"{where}: decisions[{i}]: expected {item.label and item.label.desc!r} as object {item.object} of "
                    f"image {item.image_id!r}, found {found}; review again"
                )
            self.of_row[n] = item

    def tell(self, item: Decision, image: int, before: Any, after: Any, dropped: Sequence[str] = ()) -> None:
        """Add a change to the list."""
        change = {
            "image_id": item.image_id,
            "image": self.truth.file_names[image],
            "object": item.object,
            "decision": item.decision,
            "why": f"{item.kind}, probability {item.probability:.3f}, decided by a person: {item.decision}",
            "kind": item.kind,
            "probability": item.probability,
            "before": before,
            "after": after,
        }
        self.changes.append(change | ({"dropped_fields": list(dropped)} if dropped else {}))

    def inside(self, item: Decision, image: int) -> Box:
        """Return the box of an answer, clipped to its image."""
        box, size = item.answer.bbox_xyxy, self.truth.sizes_I2[image]
        if not np.isfinite(size).all():
            return box
        low, high = np.clip(np.reshape(box, (2, 2)), 0, size)
        if (low >= high).any():
            raise InputError(f"decisions: the box {list(box)} lies outside image {item.image_id!r}; decide otherwise")
        return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _coco(file: JsonFile, annotations: AnnotationSet, plan: _Plan) -> str:
    document = dict(file.document)
    ids = {category.name: category.id for category in annotations.categories}

    def category_of(item: Decision) -> int | str:
        if item.answer.desc not in ids:
            raise InputError(
                f"decisions: {item.answer.desc!r} is no category of {file.path}; add it there, or decide otherwise"
            )
        return ids[item.answer.desc]

    rows = []
    columns = document["annotations"], plan.truth.image_N.tolist(), plan.truth.category_N.tolist()
    for n, (record, image, category) in enumerate(zip(*columns, strict=True)):
        item = plan.of_row.get(n)
        if item is None:
            rows.append(record)
            continue
        name = plan.truth.categories[category]
        before = {"id": record.get("id"), "desc": name, "bbox": record.get("bbox")}
        if item.decision == "delete":
            plan.tell(item, image, before, None)
            continue
        changed, dropped = dict(record), []
        if item.decision in ("name", "answer"):
            changed["category_id"] = category_of(item)
            name = item.answer.desc
        if item.decision in ("box", "answer"):
            dropped = [key for key in _OF_OLD_BOX if changed.pop(key, None) is not None]
            changed |= _coco_box(plan.inside(item, image))
        after = {"id": record.get("id"), "desc": name, "bbox": changed.get("bbox")}
        plan.tell(item, image, before, after, dropped)
        rows.append(changed)
    used = [record.get("id") for record in document["annotations"]]
    free = count(max((value for value in used if isinstance(value, int)), default=0) + 1)
    for image, item in ((image, item) for image, items in sorted(plan.added.items()) for item in items):
        number, box = next(free), _coco_box(plan.inside(item, image))
        made = {"id": number, "image_id": plan.truth.image_ids[image], "category_id": category_of(item), **box}
        plan.tell(item, image, None, {"id": number, "desc": item.answer.desc, "bbox": box["bbox"]})
        rows.append({**made, "iscrowd": 0})
    return json.dumps(document | {"annotations": rows}, ensure_ascii=False) + "\n"


def _coco_box(box: Box) -> dict[str, Any]:
    x1, y1, x2, y2 = box
    return {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}


def _instances(file: JsonFile, annotations: AnnotationSet, plan: _Plan) -> str:
    """Return the lines; those without a change stay as they are."""
    index = IdIndex(plan.truth)
    changed: dict[int, str] = {}
    for place, instance in enumerate(annotations.instances):
        image = index.by_id(place if instance.image_id is None else instance.image_id)
        assert image is not None
        first = int(np.searchsorted(plan.truth.image_N, image))
        decisions = [plan.of_row.get(first + i) for i in range(len(instance.objects))]
        if image in plan.added or any(decisions):
            objects = tuple(_objects(instance.objects, decisions, plan, image))
            changed[place] = instance_line(instance.model_copy(update={"objects": objects}))
    if file.rows and isinstance(file.rows[0][1], str):  # a JSON list, not lines
        records = [json.loads(changed[i]) if i in changed else record for i, record in enumerate(file.document)]
        return json.dumps(records, ensure_ascii=False) + "\n"
    lines = (line.decode("utf-8").rstrip("\r\n") for _, line in file.lines())
    return "".join(f"{changed.get(place, line)}\n" for place, line in enumerate(lines))


def _objects(
    objects: Sequence[Object], decisions: Sequence[Decision | None], plan: _Plan, image: int
) -> Iterator[Object]:
    """Yield what becomes of the objects of an image, and those that are added."""
    for obj, item in zip(objects, decisions, strict=True):
        if item is None:
            yield obj
            continue
        if item.decision in ("box", "answer") and obj.geometry and not geometry_of(obj.geometry.type).is_box:
            _refuse(item, f"the label is drawn as {obj.geometry.type}")
        if item.decision == "delete":
            plan.tell(item, image, _shown(obj), None)
            continue
        changed, dropped = _changed(obj, item, plan, image)
        plan.tell(item, image, _shown(obj), _shown(changed), dropped)
        yield changed
    for item in plan.added.get(image, ()):
        if plan.truth.drawn:
            _refuse(item, f"the labels of this file are drawn as {', '.join(plan.truth.drawn)}")
        made = Object(desc=item.answer.desc, bbox=_unit(plan, item, image))
        plan.tell(item, image, None, _shown(made))
        yield made


def _shown(obj: Object) -> dict[str, Any]:
    return {"desc": obj.desc, "bbox": list(obj.bbox)}


def _refuse(item: Decision, why: str) -> NoReturn:
    raise InputError(
        f"decisions: {item.decision!r} for object {item.object} of image {item.image_id!r}: {why}, and the answer "
        "gives only a box; take its name, delete or look later, and draw it in a labelling tool"
    )


def _changed(obj: Object, item: Decision, plan: _Plan, image: int) -> tuple[Object, list[str]]:
    """Return the object as decided, and the fields that were dropped since they are about its old box."""
    values = obj.model_dump(exclude_unset=True)
    dropped = []
    if item.decision in ("name", "answer"):
        values["desc"] = item.answer.desc
    if item.decision in ("box", "answer"):
        dropped = [name for name in ("geometry", "area") if values.pop(name, None) is not None]
        values["bbox"] = _unit(plan, item, image)
    return Object(**values), dropped


def _unit(plan: _Plan, item: Decision, image: int) -> Box:
    box = np.array(plan.inside(item, image)) / np.tile(plan.truth.sizes_I2[image], 2)
    x1, y1, x2, y2 = box.tolist()
    return x1, y1, x2, y2
