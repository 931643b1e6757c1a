"""Every planted fault of all boxes is named, alone and in pairs; a clean set, and one that shows nothing, is quiet."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from planted import COCO, JSONL, SHARED_DATA, edit_records, read, told, told_of_boxes

from coord_codec.box_transforms import TURNS
from coord_data.inspection.examine import examination_of
from coord_data.preparing.preparation import prepare
from coord_data.sources.read_as import inflate

PHOTOGRAPHS = SHARED_DATA / "coco_permissive33"


@pytest.mark.slow
@pytest.mark.parametrize("coco", [True, False])
def test_clean_set_is_quiet(clean, tmp_path, coco):
    codes, found = told(replace(clean, coco=coco).write(tmp_path))
    assert codes == set() and not any(f.severity == "error" for f in found.findings)


@pytest.mark.drawn(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("coco", "name"),
    [*((True, name) for name in COCO if "too_" not in name and name != "resized, .8"), *((False, n) for n in JSONL)],
    ids=str,
)
def test_fault_of_all_boxes_is_named_alone(clean, tmp_path, coco, name):
    if name == "resized, 512":
        name = "resized"  # images of one size
    planted = (COCO if coco else JSONL)[name](replace(clean, coco=coco))
    codes, found = told(planted.write(tmp_path))
    assert codes == {name.partition(",")[0]}
    finding = found.findings[0]
    assert finding.severity == "error" and finding.count == len(found.raw) and finding.fix and "z " in finding.evidence


@pytest.mark.slow
@pytest.mark.drawn(3)
@pytest.mark.parametrize("factor", [0.8, 0.9, 1.0, 1.04, 1.1, 1.2, 1.3])
def test_size_of_the_boxes_is_told_within_some_per_cent(clean, tmp_path, factor):
    planted = replace(clean, coco=True).moved(lambda b: inflate(b, factor))
    _, found = told(planted.write(tmp_path))
    of_boxes = [f for f in found.findings if f.code != "rare_classes"]
    if abs(factor - 1) < 0.05:
        assert of_boxes == []
        return
    (finding,) = of_boxes
    assert finding.code == ("too_large" if factor > 1 else "too_small")
    # A small margin is a habit of annotators; boxes that are too small are cut off.
    assert finding.severity == ("error" if factor < 1 else "warning" if factor >= 1.2 else "note")
    share = float(re.search(r"about (\d+)%", finding.message)[1]) / 100
    assert share == pytest.approx(abs(factor - 1), abs=0.05)


PAIRS = [
    (False, "cxcywh", "pixels"),
    (False, "yxyx", "norm1000"),
    (True, "swapped_axes", "unit"),
    (True, "cxcywh", "resized"),
    (True, "too_small, 20 %", "mirrored"),
    (True, "too_small, 20 %", "cxcywh"),
    (True, "too_large, 20 %", "norm1000"),
    (True, "mirrored", "resized, .8"),
    (True, "xyxy", "shuffled"),
    (True, "norm1000", "shuffled"),
    (True, "shifted, 3 %", "shuffled"),
]
"""One of each kind: faults of the order, of the unit, and of the image that can hold together."""


@pytest.mark.drawn(3)
@pytest.mark.slow
@pytest.mark.parametrize(("coco", "first", "second"), PAIRS, ids=str)
def test_two_faults_of_all_boxes_are_both_named(clean, coco, first, second):
    faults = COCO if coco else JSONL
    planted = faults[second](faults[first](replace(clean, coco=coco)))
    found = {code: finding for code, finding in told_of_boxes(planted)[0].items() if finding.severity != "note"}
    assert found.keys() == {name.partition(",")[0] for name in (first, second)}
    assert {finding.count for finding in found.values()} == {sum(map(len, clean.corners))}


@pytest.mark.slow
@pytest.mark.parametrize("boxes_are", ["stored", "upright"])
def test_exif_orientation_is_told_from_what_the_boxes_fit(clean, tmp_path, boxes_are):
    source = clean.write(tmp_path)
    edit_records(source, lambda records: [r.update(image=r["image"].replace(".png", ".jpg")) for r in records])
    for i, (name, image) in enumerate(clean.images.items()):
        exif = Image.Exif()
        if i < 20:
            exif[0x0112] = 6
            # A viewer turns by 270 degrees what is stored turned by 90.
        stored = image.transpose(Image.Transpose.ROTATE_90) if i < 20 and boxes_are == "upright" else image
        stored.save(tmp_path / name.replace(".png", ".jpg"), exif=exif, quality=95)
    _, found = told(source)
    (finding,) = [f for f in found.findings if f.code == "exif"]
    assert finding.severity == ("error" if boxes_are == "stored" else "note") and finding.count == 20
    assert [f.code for f in found.findings if f.severity == "error"] == ["exif"] * (boxes_are == "stored")


@pytest.mark.slow
@pytest.mark.parametrize("coco", [False, True])
def test_printed_command_reads_boxes_of_stored_pixels_by_the_orientation_of_each_image(clean, tmp_path, coco):
    source = replace(clean, coco=coco).write(tmp_path)
    turns = [(1, 3, 6, 8, 5)[i % 5] for i in range(len(clean.images))]
    for turn, (name, image) in zip(turns, clean.images.items(), strict=True):
        exif = Image.Exif()
        exif[0x0112] = turn
        image.save(tmp_path / name, exif=exif)
    (finding,) = [f for f in told(source)[1].findings if f.severity == "error"]
    assert finding.code == "exif" and finding.fix == "coord-data prepare SRC --out DIR --read-as stored"
    rules = source.rules.model_copy(update={"read_as": "stored"})
    prepare([source.annotations], tmp_path / "out.jsonl", rules)
    found = examination_of(tmp_path / "out.jsonl")
    assert {f.code: f.severity for f in found.findings} == {"exif": "note", "reread": "note"}
    wanted = np.concatenate([TURNS[turn](boxes) for turn, boxes in zip(turns, clean.corners, strict=True)])
    assert np.abs(found.boxes - wanted).max() < 1e-6


@pytest.mark.slow
def test_turned_images_beside_one_that_cannot_be_read_are_told(clean, tmp_path):
    source = replace(clean, coco=True).write(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    first, *others = clean.images.items()
    for name, image in others:
        image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / name, exif=exif)
    (tmp_path / first[0]).write_bytes(b"no image")
    found = {f.code: f for f in told(source)[1].findings}
    assert found["exif"].severity == "note" and found["exif"].count == len(others)
    assert found["unreadable_image"].count == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "exif", "mirrored", "swapped_axes", "cxcywh"])
def test_boxes_are_compared_with_pixels_where_all_images_are_turned(clean, tmp_path, fault):
    planted = COCO.get(fault, lambda draft: draft)(replace(clean, coco=True))
    source = planted.write(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    source.annotations.write_text(source.annotations.read_text().replace(".png", ".jpg"))
    for name, image in clean.images.items():
        stored = image if fault == "exif" else image.transpose(Image.Transpose.ROTATE_90)
        stored.save(tmp_path / name.replace(".png", ".jpg"), exif=exif, quality=95)
    codes, found = told(source)
    assert codes == ({fault} if fault else set())
    assert {f.code for f in found.findings if f.severity == "note"} == ({"exif"} - codes)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_number_near_the_end_of_its_range_is_refused_in_silence(clean, tmp_path):
    source = replace(clean, coco=True).write(tmp_path)
    document = json.loads(source.annotations.read_text())
    document["annotations"][0]["bbox"] = [1e308] * 4
    source.annotations.write_text(json.dumps(document))
    assert told(source)[0] == {"refused"}


@pytest.mark.slow
def test_doctor_abstains_where_boxes_show_nothing(clean, tmp_path):
    rng = np.random.default_rng(0)
    noise = {name: Image.fromarray(rng.integers(0, 255, (96, 96, 3), np.uint8)) for name in clean.images}
    for name, plant in (("clean", lambda d: d), ("shuffled", COCO["shuffled"])):
        codes, found = told(plant(replace(clean, images=noise, coco=True)).write(tmp_path / name))
        assert codes == set()
        assert "no_evidence" in {f.code for f in found.findings}


@pytest.mark.slow
@pytest.mark.drawn(1)
@pytest.mark.parametrize("unit", [1.0, 40_000.0])
def test_numbers_that_fit_no_reading_are_an_error(clean, tmp_path, unit):
    """Boxes anywhere: fractions, some of them beyond 1, of images of 96 pixels; numbers far outside of these."""
    rng = np.random.default_rng(0)
    corners = tuple(np.sort(rng.uniform(0, 1.5, (len(c), 2, 2)), axis=1).reshape(-1, 4) for c in clean.corners)
    planted = replace(clean, coco=True, corners=corners, unit=lambda size: np.full_like(size, unit))
    codes, found = told(planted.write(tmp_path))
    assert "unknown_numbers" in codes <= {"unknown_numbers", "refused"} and any(
        f.severity == "error" for f in found.findings
    )


@pytest.mark.slow
def test_shuffled_pixels_are_named_where_sizes_differ(clean, tmp_path):
    """A box keeps its pixels in an image of another size, and may leave it."""
    sizes = [(96, 96), (160, 96), (96, 160)]
    images = {name: image.resize(sizes[k % 3]) for k, (name, image) in enumerate(clean.images.items())}
    planted = COCO["shuffled"](replace(clean, images=images, coco=True))
    ends = [(b[:, :2] + b[:, 2:]) / i.size for b, i in zip(planted.numbers(), images.values(), strict=True)]
    assert np.concatenate(ends).max() > 1.3
    codes, _ = told(planted.write(tmp_path))
    assert "shuffled" in codes <= {"shuffled", "refused"}


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason=f"the real photographs are not at {PHOTOGRAPHS}")
@pytest.mark.parametrize("name", ["clean", "swapped_axes", "resized, .8"])
def test_faults_in_real_photographs(name, tmp_path):
    draft = replace(read(PHOTOGRAPHS / "instances.json", PHOTOGRAPHS / "images"), coco=True)
    codes, _ = told(COCO[name](draft).write(tmp_path) if name != "clean" else draft.write(tmp_path))
    assert codes - {"size_mismatch"} == {name.partition(",")[0]} - {"clean"}


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason=f"the real photographs are not at {PHOTOGRAPHS}")
def test_copy_that_keeps_all_boxes_is_preferred_to_the_input_of_a_model_that_fits_as_well_but_loses_some():
    draft = read(PHOTOGRAPHS / "instances.json", PHOTOGRAPHS / "images")
    found, _ = told_of_boxes(COCO["resized, 512"](replace(draft, coco=True)))
    assert found["resized"].severity == "error" and str(found["resized"].read_as) == "longer:512"
