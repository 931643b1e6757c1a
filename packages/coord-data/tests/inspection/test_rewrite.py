"""The line that a finding tells mends the file when it is applied to the numbers as it stands."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from planted import Draft, centred, shapes, sized
from yolo_files import write_yolo

from coord_codec.layouts import LAYOUTS, TURNS
from coord_data.inspection.examine import examine
from coord_data.inspection.numbers import rewrite
from coord_data.inspection.numbers.copies import KINDS, Copy
from coord_data.inspection.numbers.raw import DataSource

WRITTEN = {"xyxy": lambda b: b, "xywh": sized, "cxcywh": centred}
BOXES = np.array([[0.1, 0.2, 0.4, 0.9], [0.5, 0.05, 0.8, 0.3]])
SIZES = {"pixels": np.array([640.0, 480.0]), "unit": np.ones(2), "norm1000": np.full(2, 1000.0)}


def applied(line, numbers_N4, size):
    """Return what a line says to write."""
    names, written = re.search(r"as `(.*?)` and write `(.*?)`", line).groups()
    code = compile(f"({written})", line, "eval")
    rows = [dict(zip(names.split(", "), row, strict=True)) for row in np.asarray(numbers_N4, float).tolist()]
    image = dict(zip("WH", map(float, size), strict=True)) | {"max": max}
    return np.array([eval(code, {"__builtins__": {}}, image | row) for row in rows])


@pytest.mark.parametrize("declared", WRITTEN)
@pytest.mark.parametrize("found", LAYOUTS)
def test_reorder(found, declared):
    boxes = LAYOUTS[found](BOXES)
    line = rewrite.reorder(found, declared)
    np.testing.assert_allclose(LAYOUTS[declared](applied(line, BOXES, (640, 480))), boxes)


@pytest.mark.parametrize("unit", SIZES)
@pytest.mark.parametrize("layout", WRITTEN)
class TestLineIsInTheUnitOfTheFile:
    @staticmethod
    def file(boxes, layout, unit):
        return WRITTEN[layout](boxes * np.tile(SIZES[unit], 2))

    def mends(self, line, found, layout, unit):
        mended = applied(line, found, SIZES["pixels"])
        np.testing.assert_allclose(mended, self.file(BOXES, layout, unit), rtol=2e-3, atol=1e-6)

    @pytest.mark.parametrize("found", ["pixels", "unit", "percent", "norm1000", "norm999"])
    def test_rescale(self, layout, unit, found):
        side = {"percent": np.full(2, 100.0), "norm999": np.full(2, 999.0)} | SIZES
        self.mends(rewrite.rescale(layout, found, unit), WRITTEN[layout](BOXES * np.tile(side[found], 2)), layout, unit)

    @pytest.mark.parametrize("kind", KINDS)
    def test_copy(self, layout, unit, kind):
        copy = Copy(kind, 0.8 if kind == "times" else 512)
        size = copy.sizes(SIZES["pixels"][None])[0]
        margin = (copy.value - size) / 2 if kind == "padded" else np.zeros(2)
        found = WRITTEN[layout](BOXES * np.tile(size, 2) + np.tile(margin, 2))
        self.mends(rewrite.rescale(layout, copy, unit), found, layout, unit)

    @pytest.mark.parametrize(("turn", "back"), [(2, 2), (3, 3), (4, 4), (6, 8), (8, 6)])
    def test_turn(self, layout, unit, turn, back):
        self.mends(rewrite.turn(layout, turn, unit), self.file(TURNS[back](BOXES), layout, unit), layout, unit)

    def test_stretch_and_inflate(self, layout, unit):
        self.mends(rewrite.stretch(layout, 1.25), self.file(BOXES / 1.25, layout, unit), layout, unit)
        centre = np.tile((BOXES[:, :2] + BOXES[:, 2:]) / 2, 2)
        large = centre + (BOXES - centre) / 0.8
        self.mends(rewrite.inflate(layout, 0.8), self.file(large, layout, unit), layout, unit)

    @pytest.mark.parametrize("in_pixels", [True, False])
    def test_move(self, layout, unit, in_pixels):
        step = np.array([-40, 24.0]) / (SIZES["pixels"] if in_pixels else 800)
        told = step * SIZES["pixels"] if in_pixels else step
        x, y = (rewrite.length(v, unit, side, in_pixels) for v, side in zip(told.tolist(), "WH", strict=True))
        self.mends(rewrite.move(layout, x, y), self.file(BOXES - np.tile(step, 2), layout, unit), layout, unit)


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


FAULTS = ["mirrored", "upside_down", "unit", "percent", "norm1000", "square", "order", "order, unit"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("format", WRITE)
def test_line_of_a_finding_mends_the_file(clean, tmp_path, format, fault):
    layout, unit, write = WRITE[format]
    planted = replace(clean, layout=WRITTEN[layout], unit=UNITS[unit])
    if fault in ("mirrored", "upside_down"):
        planted = planted.moved(TURNS[2 if fault == "mirrored" else 4])
    if "order" in fault:
        planted = replace(planted, layout=WRITTEN["xywh" if layout == "xyxy" else "xyxy"])
    if "unit" in fault or fault in UNITS:
        other = {"unit": "pixels" if unit == "unit" else "unit"}.get(fault.split(", ")[-1], fault)
        if other == unit or (format, other) == ("csv", "unit"):
            pytest.skip("no fault of this format")
        if format in ("voc", "bins") and other in ("unit", "percent"):
            pytest.skip("whole numbers cannot hold it")
        planted = replace(planted, unit=UNITS[other])
    found = examine(write(planted, tmp_path / "planted"), max_objects=30)
    lines = [f.fix for f in found.findings if f.severity == "error" and f.code != "refused"]
    assert lines, [str(f) for f in found.findings]
    numbers = planted.numbers()
    for line in lines:
        pairs = zip(numbers, planted.images.values(), strict=True)
        numbers = [applied(line, rows, image.size) for rows, image in pairs]
    mended = type("Mended", (Draft,), {"numbers": lambda self: numbers})(**vars(planted))
    again = examine(write(mended, tmp_path / "mended"), max_objects=30)
    assert [str(f) for f in again.findings if f.severity == "error"] == []
    wanted = replace(clean, layout=WRITTEN[layout], unit=UNITS[unit]).numbers()
    for rows, right, image in zip(numbers, wanted, planted.images.values(), strict=True):
        size = {"pixels": max(image.size), "unit": 1, "norm1000": 1000}[unit]
        assert np.abs(rows - right).max() < 0.03 * size


def test_thousandths_that_a_reader_counts_from_1_are_no_bins(clean, tmp_path):
    touching = tuple(np.concatenate([b[:-1], [[0.5, 0.5, 1, 1]]]) for b in clean.corners)
    planted = replace(clean, corners=touching, layout=sized, unit=UNITS["norm1000"])
    found = examine(_voc(planted, tmp_path), max_objects=30)
    assert [f.code for f in found.findings if f.severity == "error"] == ["xywh", "norm1000"]


@pytest.mark.parametrize("format", ["coco", "jsonl", "voc", "csv"])
def test_bins_that_end_at_999_are_not_read_as_thousandths(clean, tmp_path, format):
    layout, unit, write = WRITE[format]
    touching = tuple(np.concatenate([b[:-1], [[0.5, 0.5, 1, 1]]]) for b in clean.corners)
    planted = replace(clean, corners=touching, layout=WRITTEN[layout])
    planted = replace(planted, unit=lambda size: np.full_like(size, 999))
    found = examine(write(planted, tmp_path), max_objects=30)
    errors = [f for f in found.findings if f.severity == "error" and f.code != "refused"]
    assert [f.code for f in errors] == ["norm999"], [str(f) for f in found.findings]
    assert "bins 0 to 999" in errors[0].message
    size = np.array([320.0, 240.0])
    back = {"pixels": np.tile(size, 2), "unit": np.ones(4)}[unit]
    whole = WRITTEN[layout](np.array([[0.0, 0.0, 1, 1]]))
    np.testing.assert_allclose(applied(errors[0].fix, whole * 999, size), whole * back)
