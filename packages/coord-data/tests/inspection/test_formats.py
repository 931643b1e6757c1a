"""Sets of other formats are examined as their files state them, and files that cannot be read are named."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from planted import JSONL, DataSource, centred, examine, told
from yolo_files import write_yolo

from coord_codec import InputError


def test_annotation_file_that_cannot_be_read_is_no_unreadable_image(tmp_path):
    """It names no image: it was counted as one, under an empty name."""
    from coco_twins import write_voc

    (tmp_path / "images").mkdir()
    for stem in ("a", "b", "c"):
        Image.new("RGB", (200, 100)).save(tmp_path / "images" / f"{stem}.jpg")
    write_voc(tmp_path)
    (tmp_path / "Annotations" / "a.xml").write_text("<annotation><filename>a.jpg</filename><obj")
    found = examine(DataSource(tmp_path))
    assert "unreadable_image" not in {finding.code for finding in found.findings}
    (refused,) = [finding for finding in found.findings if finding.code == "refused"]
    assert refused.count == 1 and "a.xml: expected Pascal VOC XML" in refused.evidence
    assert found.raw.files == ("b.jpg", "c.jpg")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "yxyx"])
def test_other_formats_are_examined_as_they_are_read(clean, tmp_path, fault):
    """Pascal VOC, corners in whole pixels from 1."""
    draft = replace(clean, unit=lambda size: size, layout=None)
    draft = JSONL["yxyx"](draft) if fault == "yxyx" else draft
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "JPEGImages").mkdir()
    draft.write_images(tmp_path / "JPEGImages")
    sides = "xmin", "ymin", "xmax", "ymax"
    for (name, image), boxes, labels in zip(draft.images.items(), draft.numbers(), draft.labels, strict=True):
        rows = np.rint(boxes).astype(int) + np.array([1, 1, 0, 0])
        written = ["".join(f"<{s}>{v}</{s}>" for s, v in zip(sides, row, strict=True)) for row in rows]
        objects = [
            f"<object><name>{d}</name><bndbox>{b}</bndbox></object>" for d, b in zip(labels, written, strict=True)
        ]
        size = f"<size><width>{image.width}</width><height>{image.height}</height></size>"
        text = f"<annotation><filename>{name}</filename>{size}{''.join(objects)}</annotation>"
        (tmp_path / "Annotations" / f"{name[:-4]}.xml").write_text(text)
    codes, found = told(DataSource(tmp_path))
    assert len(found.raw.files) == len(clean.images) and codes == ({fault} if fault else set())


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "xywh", "xyxy", "swapped_axes", "pixels"])
def test_yolo_labels_are_examined_as_they_are_written(clean, tmp_path, fault):
    draft = {
        None: lambda d: replace(d, layout=centred),
        "xywh": JSONL["xywh"],
        "xyxy": lambda d: d,
        "swapped_axes": lambda d: replace(d, layout=lambda b: centred(b)[:, [1, 0, 3, 2]]),
        "pixels": lambda d: replace(d, layout=centred, unit=lambda size: size),
    }[fault](clean)
    write_yolo(draft, tmp_path)
    codes, found = told(DataSource(tmp_path))
    assert codes == ({fault} if fault else set())
    if fault == "pixels":  # every line is refused, and says so; the doctor says what they are
        assert [f.count for f in found.findings if f.code == "pixels"] == [len(found.raw)] and len(found.raw) > 40


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_yolo_lines_with_numbers_that_are_none_say_nothing_of_the_others(clean, tmp_path):
    write_yolo(replace(clean, layout=centred), tmp_path)
    for label, line in zip(
        sorted((tmp_path / "labels").iterdir()), ("nan .5 .5 .2 .2", "0 inf .5 .2 nan"), strict=False
    ):
        label.write_text(f"{label.read_text()}\n{line}\n")
    codes, found = told(DataSource(tmp_path))
    assert codes == {"refused"} and found.findings[0].count == 2 and np.isfinite(found.raw.numbers_N4).all()


@pytest.mark.parametrize("text", ["", "[]", '{"images": [], "annotations": [], "categories": []}'])
def test_set_without_records_is_a_wrong_file(tmp_path, text):
    name = "a.json" if text else "a.jsonl"
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=r"found (none|an empty file)"):
        examine(DataSource(tmp_path / name), max_objects=30)
