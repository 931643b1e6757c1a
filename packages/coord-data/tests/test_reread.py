"""The command that a finding names mends the data: prepared under another reading, it has no fault any more."""

import json
from dataclasses import replace

import numpy as np
import pytest
from planted import DataSource, centred, examine, shapes, sized, told_reading
from yolo_files import write_yolo

from coord_codec import InputError
from coord_codec.box_transforms import TURNS
from coord_data import ReadingRules, load_annotated, prepare

WRITTEN = {"xyxy": lambda b: b, "xywh": sized, "cxcywh": centred}


@pytest.fixture(scope="module")
def clean():
    """Generated images of several sizes."""
    draft, rng = shapes(40), np.random.default_rng(0)
    sizes = [(int(96 * a), int(96 * b)) for a, b in rng.uniform(0.9, 1.6, (40, 2))]
    return replace(draft, images={n: i.resize(s) for (n, i), s in zip(draft.images.items(), sizes, strict=True)})


def _in_bins(draft, folder):
    source = draft.write(folder)
    records = [json.loads(line) for line in source.annotations.read_text().splitlines()]
    for record in records:
        record["coord_space"] = "bins"
        for item in record["objects"]:
            item["bbox"] = [int(value) for value in np.clip(np.round(item["bbox"]), 0, 999)]
    source.annotations.write_text("".join(json.dumps(record) + "\n" for record in records))
    return source


def _voc(draft, folder):
    (folder / "Annotations").mkdir(parents=True)
    (folder / "JPEGImages").mkdir()
    draft.write_images(folder / "JPEGImages")
    sides = ("xmin", "ymin", "xmax", "ymax")
    for name, boxes, labels in zip(draft.images, draft.numbers(), draft.labels, strict=True):
        rows = [" ".join(f"<{s}>{round(v)}</{s}>" for s, v in zip(sides, b, strict=True)) for b in boxes.tolist()]
        objects = [f"<object><name>{d}</name><bndbox>{r}</bndbox></object>" for d, r in zip(labels, rows, strict=True)]
        text = f"<annotation><filename>{name}</filename>{''.join(objects)}</annotation>"
        (folder / "Annotations" / f"{name[:-4]}.xml").write_text(text)
    return DataSource(folder)


def _csv(draft, folder):
    source = draft.write(folder)
    lines = ["filename,class,x1,y1,x2,y2"]
    for name, boxes, labels in zip(draft.images, draft.numbers(), draft.labels, strict=True):
        lines += [",".join(map(str, (name, d, *b))) for d, b in zip(labels, boxes.tolist(), strict=True)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    return DataSource(folder / "a.csv", source.images or folder)


def _yolo(draft, folder):
    folder.mkdir(parents=True)
    write_yolo(draft, folder)
    return DataSource(folder)


def _qwen(draft, folder):
    draft.write(folder)
    rows = zip(draft.images, draft.numbers(), draft.labels, strict=True)
    lines = []
    for name, boxes, labels in rows:
        answer = [{"bbox_2d": b, "label": d} for b, d in zip(boxes.tolist(), labels, strict=True)]
        turns = [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": json.dumps(answer)}]
        lines.append(json.dumps({"messages": turns, "images": [name]}) + "\n")
    (folder / "q.jsonl").write_text("".join(lines))
    return DataSource(folder / "q.jsonl", folder, "qwen")


WRITE = {
    "coco": ("xywh", "pixels", lambda draft, folder: replace(draft, coco=True).write(folder)),
    "jsonl": ("xyxy", "unit", lambda draft, folder: draft.write(folder)),
    "bins": ("xyxy", "norm1000", _in_bins),
    "voc": ("xyxy", "pixels", _voc),
    "csv": ("xyxy", "pixels", _csv),
    "yolo": ("cxcywh", "unit", _yolo),
    "qwen": ("xyxy", "norm1000", _qwen),
}
UNITS = {
    "pixels": lambda size: size,
    "unit": np.ones_like,
    "percent": lambda size: np.full_like(size, 100),
    "norm1000": lambda size: np.full_like(size, 1000),
    "square": lambda size: np.full_like(size, 300),
}
FAULTS = [
    *(("coco", fault) for fault in ("mirrored", "unit", "order, unit")),
    *(("jsonl", fault) for fault in ("upside_down", "norm1000", "square")),
    *(("bins", fault) for fault in ("mirrored", "order")),
    *(("voc", fault) for fault in ("order", "square")),
    *(("csv", fault) for fault in ("upside_down", "percent")),
    *(("yolo", fault) for fault in ("percent", "order, unit")),
    *(("qwen", fault) for fault in ("mirrored", "unit")),
]
"""Every format with a fault of the boxes or their order, and with one of their unit."""


@pytest.mark.drawn(4)
@pytest.mark.slow
@pytest.mark.parametrize(("format", "fault"), FAULTS)
def test_command_of_a_finding_mends_the_data(clean, tmp_path, format, fault):
    layout, unit, write = WRITE[format]
    planted = replace(clean, layout=WRITTEN[layout], unit=UNITS[unit])
    if fault in ("mirrored", "upside_down"):
        planted = planted.moved(TURNS[2 if fault == "mirrored" else 4])
    if "order" in fault:
        planted = replace(planted, layout=WRITTEN["xywh" if layout == "xyxy" else "xyxy"])
    if "unit" in fault or fault in UNITS:
        other = {"unit": "pixels" if unit == "unit" else "unit"}.get(fault.split(", ")[-1], fault)
        planted = replace(planted, unit=UNITS[other])
    source = write(planted, tmp_path / "planted")
    errors = [f for f in examine(source).findings if f.severity == "error" and f.code != "refused"]
    assert errors
    (words,) = {str(told_reading(finding)) for finding in errors}  # one command mends all
    rules = source.rules.model_copy(update={"read_as": words})
    prepare([source.annotations], tmp_path / "mended", rules)
    again = examine(DataSource(tmp_path / "mended" / "instances.jsonl"))
    assert [str(f) for f in again.findings if f.severity == "error"] == []
    prepared = load_annotated(tmp_path / "mended" / "instances.jsonl")
    boxes = {instance.image.rpartition("/")[2]: [o.bbox for o in instance.objects] for instance in prepared.instances}
    assert boxes.keys() == clean.images.keys() and not prepared.problems
    for name, corners in zip(clean.images, clean.corners, strict=True):
        assert np.abs(np.array(boxes[name]) - corners).max() < 0.03


def test_all_other_parts_of_records_stay(clean, tmp_path):
    source = replace(clean.subset(range(3)), coco=True).write(tmp_path)
    document = json.loads(source.annotations.read_text())
    first = document["annotations"][0]
    first["bbox"] = first["bbox"][:2]  # no box, which the reader reports
    for row in document["annotations"][1:]:
        x, y, w, h = row["bbox"]
        row["bbox"] = [y, x, y + h, x + w]
    document["images"][2]["note"] = "kept"
    source.annotations.write_text(json.dumps(document))
    right = load_annotated(clean.subset(range(3)).write(tmp_path / "right").annotations)
    rules = source.rules.model_copy(update={"read_as": "yxyx", "on_bad_box": "drop_box"})
    images = load_annotated(source.annotations, rules)
    assert [problem.where.rpartition("annotations[")[2] for problem in images.problems] == ["0]"]
    by_name = {instance.image: instance for instance in images.instances}
    for instance in right.instances[1:]:
        same = by_name[instance.image]
        assert same.image_id is not None and len(same.objects) == len(instance.objects)
        for a, b in zip(same.objects, instance.objects, strict=True):
            assert a.desc == b.desc and a.bbox == pytest.approx(b.bbox, abs=1e-9)


def test_reading_of_no_boxes_is_refused(clean, tmp_path):
    source = clean.subset(range(3)).write(tmp_path)
    with pytest.raises(InputError, match="read_as"):
        load_annotated(source.annotations, ReadingRules(read_as="percent", geometry="polygon"))
    with pytest.raises(ValueError, match="expected one unit"):
        ReadingRules(read_as="percent,pixels")


@pytest.mark.slow
@pytest.mark.parametrize("format", ["coco", "jsonl", "csv"])
def test_bins_that_end_at_999_are_read_as_such(clean, tmp_path, format):
    layout, _, write = WRITE[format]
    touching = tuple(np.concatenate([b[:-1], [[0.5, 0.5, 1, 1]]]) for b in clean.corners)
    planted = replace(clean, corners=touching, layout=WRITTEN[layout])
    planted = replace(planted, unit=lambda size: np.full_like(size, 999))
    source = write(planted, tmp_path)
    errors = [f for f in examine(source).findings if f.severity == "error" and f.code != "refused"]
    assert [f.code for f in errors] == ["norm999"]
    reading = told_reading(errors[0])
    assert reading.unit == "norm999"
    images = load_annotated(source.annotations, source.rules.model_copy(update={"read_as": str(reading)}))
    assert all(instance.objects[-1].bbox == pytest.approx((0.5, 0.5, 1, 1)) for instance in images.instances)


@pytest.mark.slow
def test_thousandths_that_a_reader_counts_from_1_are_no_bins(clean, tmp_path):
    touching = tuple(np.concatenate([b[:-1], [[0.5, 0.5, 1, 1]]]) for b in clean.corners)
    planted = replace(clean, corners=touching, layout=sized, unit=UNITS["norm1000"])
    found = examine(_voc(planted, tmp_path))
    assert [f.code for f in found.findings if f.severity == "error"] == ["xywh", "norm1000"]
