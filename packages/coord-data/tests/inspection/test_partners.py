"""What has no partner, in formats with a file for each image: counted by side, a warning by evidence alone."""

import json

import pytest
from one_image import VOC, picture

from coord_codec import InputError
from coord_data import inspect, load
from coord_data.sources.partners import WITHOUT_LABELS, Partners, partners_of
from coord_data.sources.raw import RawImage, Reading

SHAPE = {"label": "cat", "shape_type": "rectangle", "points": [[4, 4], [36, 36]]}
FORMATS = {
    "yolo": ("images/{}.png", "labels/{}.txt", lambda name: "0 .5 .5 .2 .2\n"),
    "yolo_beside": ("{}.png", "{}.txt", lambda name: "0 .5 .5 .2 .2\n"),
    "voc": ("JPEGImages/{}.png", "Annotations/{}.xml", lambda name: VOC.replace("a.png", f"{name}.png")),
    "voc_beside": ("{}.png", "{}.xml", lambda name: VOC.replace("a.png", f"{name}.png")),
    "labelme": ("{}.png", "{}.json", lambda name: json.dumps({"shapes": [SHAPE], "imagePath": f"{name}.png"})),
    "kitti": ("image_2/{}.png", "label_2/{}.txt", lambda name: f"Car 0 0 0 4 4 36 36{' 1.5' * 7}\n"),
    "dota": ("images/{}.png", "labelTxt/{}.txt", lambda name: "4 4 36 4 36 36 4 36 cat 0\n"),
}
"""Paths of an image and of its file, and the content of that file."""


def write(folder, format, images, files):
    image, file, content = FORMATS[format]
    for n, name in enumerate(images):
        path = folder / image.format(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(n).save(path)
    for name in files:
        path = folder / file.format(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content(path.stem))
    if format.startswith("yolo"):
        (folder / "classes.txt").write_text("cat\n")
    return folder


def of_partners(examination):
    return [finding for finding in examination.findings if finding.code == "without_partner"]


NAMES = [f"cone ({n})" for n in range(5, 21)]
CASES = {
    "whole": (NAMES, NAMES, None),
    "first half": (NAMES, NAMES[:8], "warning"),
    "last half": (NAMES, NAMES[8:], "warning"),
    "first quarter": (NAMES, NAMES[:4], "warning"),
    "every second": (NAMES, NAMES[::2], "note"),
    "one": (NAMES, NAMES[:3] + NAMES[4:], "note"),
    "the last one": (NAMES, NAMES[:-1], "note"),
    "other spelling": (["Cone (5)", *NAMES[1:]], NAMES, "warning"),
    "both sides": (NAMES, ["other", *NAMES[1:]], "warning"),
}


BREAKS = {
    "first half": "the annotation files end at cone (12).png: the 8 names after it have none",
    "first quarter": "the annotation files end at cone (8).png: the 12 names after it have none",
    "last half": "the annotation files begin at cone (13).png: the 8 names before it have none",
}


QUICK = {*(("yolo", case) for case in CASES), ("voc", "first half"), ("voc", "both sides")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "case"),
    [
        pytest.param(format, case, marks=[pytest.mark.slow] * ((format, case) not in QUICK))
        for format in FORMATS
        for case in CASES
    ],
)
def test_what_has_no_partner_is_counted_by_side(tmp_path, format, case):
    images, files, severity = CASES[case]
    found = of_partners(inspect(write(tmp_path, format, images, files)))
    assert [finding.severity for finding in found] == [severity] * (severity is not None)
    for finding in found:
        assert finding.count == len(set(images) ^ set(files))
        for lone, side in ((set(images) - set(files), images), (set(files) - set(images), files)):
            assert (f": {len(lone)} of {len(side)}" in finding.message) == bool(lone)
            assert not lone or any(name in finding.evidence for name in lone)
        assert BREAKS.get(case, "") in finding.evidence


@pytest.mark.slow
def test_label_files_alone_are_a_warning_where_no_problem_tells_of_them(tmp_path):
    """As each is a refused record in the other formats."""
    for format in ("yolo", "voc", "labelme", "kitti", "dota"):
        found = inspect(write(tmp_path / format, format, NAMES[::2], NAMES))
        partners, codes = of_partners(found), {finding.code for finding in found.findings}
        assert [finding.severity for finding in partners] == ["warning"] * (format == "yolo")
        assert partners or codes & {"unreadable_image", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("format", ["yolo", "voc", "kitti"])
def test_strict_stops_at_half_a_set_and_both_commands_name_it(tmp_path, format, run):
    half = write(tmp_path / "half", format, NAMES, NAMES[:8])
    some = write(tmp_path / "some", format, NAMES, NAMES[::2])
    for place, is_half in ((half, True), (some, False)):
        out = tmp_path / f"{place.name}.out"
        code, _, printed = run("inspect", place, "--out", out, "--strict")
        assert (code, "without_partner" in printed) == (int(is_half), True)
        (row,) = (row for row in json.loads((out / "findings.json").read_text()) if row["code"] == "without_partner")
        assert row["count"] == 8 and "without_partner" in (out / "inspect.html").read_text()
        assert any("without_partner" in note for note in load(place).notes)
        if is_half:
            with pytest.raises(InputError, match=r"without_partner.*strict"):
                load(place, strict=True)
        else:
            assert load(place, strict=True)


def numbered(having, start="a", first=0):
    return {f"{start}{n + first}.png": bool(int(has)) for n, has in enumerate(having)}


@pytest.mark.parametrize(
    ("images", "is_warning"),
    [
        (numbered("1111111000"), True),
        (numbered("1111111100"), False),  # two of ten
        (numbered("1110001"), False),
        (numbered("111000"), False),  # one in twenty orders of three and three
        ({f"a{n}.png": str(n) < "5" for n in range(1, 120)}, True),  # a listing has 10 before 2
        (numbered("1101" + "1" * 8 + "0" * 10), True),
        (numbered("1101" + "1" * 8 + "0" * 9), False),  # not ten times the gap before
        (numbered("1" * 9 + "0" * 9, first=2), True),  # 9 comes before 10
        ({**numbered("1" * 9), **numbered("0" * 9, "background")}, False),
        ({f"{n * 37 % 256:02x}f.png": n * 37 % 256 < 128 for n in range(40)}, True),  # hashes
        ({f"{s}{n}.png": s < "d" for s, many in zip("abcde", (5, 1, 5, 1, 5), strict=True) for n in range(many)}, True),
        ({f"{s}/{n}.png": s == "train" for s in ("train", "val") for n in range(4)}, True),
        ({f"{s}/{n}.png": s == "cats" for s in ("cats", "empty") for n in range(4)}, False),
    ],
    ids=range(13),
)
def test_evidence_of_names(images, is_warning):
    (finding,) = Partners(images, read_alone=True).findings
    assert (finding.severity == "warning") == is_warning


@pytest.mark.slow
@pytest.mark.parametrize("format", ["voc_beside", "labelme"])
def test_pictures_of_other_folders_and_of_unreadable_files_lack_no_annotation(tmp_path, format):
    file = FORMATS[format][1]
    write(tmp_path, format, NAMES, NAMES)
    for folder in ("masks", "drawn"):
        write(tmp_path / folder, format, NAMES, [])
    for name, content in zip(NAMES[:4], ("<broken", '{"version": "6.3.1", "sha', '{"shapes": [', ""), strict=True):
        (tmp_path / file.format(name)).write_text(content)
    found = inspect(tmp_path)
    assert of_partners(found) == []
    assert sum(finding.count for finding in found.findings if finding.code in ("refused", "unreadable_image")) >= 4


@pytest.mark.parametrize(
    ("images", "files", "refused", "severity", "count"),
    [
        ({"a.png": True}, {"a.txt": True}, False, None, 0),
        ({}, {"b.txt": False}, True, None, 0),  # each is told as a problem
        ({}, {"b.txt": False}, False, "warning", 1),
        ({"a.png": False}, {"b.txt": False}, True, "warning", 2),
        ({"a.png": False, "b.png": True}, {"b.txt": True}, False, "note", 1),
        ({f"{split}/{n}.png": split == "x" for split in ("x", "val") for n in range(2)}, {}, False, "warning", 2),
        ({f"val/{n}.png": False for n in range(2)}, {}, False, "note", 2),  # no split has any
    ],
)
def test_sides_without_a_partner_are_told_once(images, files, refused, severity, count):
    found = Partners(images, files, refused_alone=refused).findings
    assert [(finding.severity, finding.count) for finding in found] == [(severity, count)] * bool(severity)


def test_images_of_the_folders_that_are_read_and_of_splits_beside_them_have_partners(tmp_path):
    for n, name in enumerate(("train/a", "train/b", "train/d", "train/e", "Valid/c", "drawn/a", "drawn/val/f")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        picture(n).save(tmp_path / f"{name}.png")
    read = [RawImage("train/a.png", "l/a.txt"), RawImage("train/gone.png", "l/gone.txt")]
    read += [RawImage("", "l/d.txt", fault="broken"), RawImage("train/b.png", "l/b.txt", notes=(WITHOUT_LABELS,))]
    reading = Reading(read, tmp_path, without_image=("l/x.txt",))
    has = {"train/a.png": True, "train/b.png": False}
    files = {"l/a.txt": True, "l/gone.txt": False, "l/x.txt": False}
    found = partners_of(reading, is_folder=False)
    assert (found.images, found.files, found.read_alone, found.refused_alone) == (has, files, False, False)
    beside = {"train/e.png": False, "Valid/c.png": False, "drawn/val/f.png": False}
    assert partners_of(reading, is_folder=True).images == has | beside
    alone = Reading(read, tmp_path, reads_alone=True)
    assert partners_of(alone, is_folder=True) == Partners(
        has, {k: files[k] for k in ("l/a.txt", "l/gone.txt")}, True, True
    )


def test_partners_are_told_where_a_set_is_loaded(tmp_path):
    notes = load(write(tmp_path, "yolo", NAMES[:4], NAMES[:3])).notes
    assert ["without_partner" in note for note in notes].count(True) == 1
