"""Findings about records count what they say they do: severity, number of records, and each figure that they state."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tables import boxes, figures, looks

from coord_codec import AnnotationSet, Category, Instance, Problem
from coord_codec.coco.reader import AREA_TOO_LARGE, NOT_AROUND
from coord_data.finding import Finding, by_share, most_severe_first
from coord_data.inspection import names, records
from coord_data.inspection.names import class_names
from coord_data.inspection.numbers.without_pixels import findings_of_numbers
from coord_data.looking.image_file import MISSING
from coord_data.looking.looks import ImageFile

BOX, OTHER = (1, 2, 30, 40), (5, 6, 30, 40)


def told(findings, *texts):
    """Return severity, count and figures of the only finding, which has these texts; None without one."""
    if not findings:
        return None
    (finding,) = findings
    whole = f"{finding.message}; {finding.evidence}; {finding.fix}"
    assert [text for text in texts if text not in whole] == []
    return finding.severity, finding.count, figures(f"{finding.message}; {finding.evidence}")


@pytest.mark.parametrize(
    ("count", "total", "grade"), [(1, 20, "error"), (1, 21, "warning"), (0, 0, "warning"), (1, 0, "error")]
)
def test_share_of_a_twentieth_spoils(count, total, grade):
    assert by_share(count, total) == grade


@pytest.mark.parametrize(("total", "grade"), [(40, "error"), (41, "warning")])
def test_images_that_cannot_be_used_are_a_share_of_the_images(tmp_path, total, grade):
    files = [(9, 9)] * (total - 2) + [ImageFile(None, "is no file"), ImageFile(None, MISSING)]
    raw = boxes([f"{n}.png" for n in range(total)], [(0, "cat", BOX)] * 3)
    first = f"the first: {total - 2}.png: is no file"
    assert told(records.unreadable_images(raw, looks(*files), tmp_path), first) == (grade, 2, [2, total, total - 2])
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / f"{total - 1}.png").touch()
    assert told(records.unreadable_images(raw, looks(*files), tmp_path), f"--images: {tmp_path}/x")
    assert records.unreadable_images(boxes(["a"]), looks((9, 9)), Path("a")) == []


def deep(low, high, span):
    """Return a look at an image of more than 8 bits with these values, which spans so many grey levels."""
    grey = np.zeros((64, 64), np.uint8)
    grey[3, 3] = span
    return ImageFile((64, 48), digest="ab" * 32, look=1, grey=grey, value_range=(low, high))


@pytest.mark.parametrize(("others", "grade"), [(36, "error"), (37, "warning")])
def test_deep_images_state_the_values_of_all_and_the_levels_of_those_that_are_flat(others, grade):
    files = [deep(100, 900, 10), deep(50, 4000, 20), *[replace(deep(0, 1, 3), value_range=None)] * others]
    found = told(
        records.deep_images(looks(*files, deep(20, 16000, 32), deep(30, 50, 99))), "(value - 20) * 255 / 15980"
    )
    assert found == (grade, 2, [2, 4, 8, 8, 20, 16000, 14, 2, 21, 256])
    assert records.nearly_uniform(looks(*files, deep(20, 16000, 32))).tolist() == [True, True, *[False] * (others + 1)]
    assert records.deep_images(looks(deep(0, 9, 32), ImageFile(None, "is no file"))) == []


def test_images_of_splits_are_counted_by_folder():
    names = ["train/a.png", "train/b.png", "x/Valid/c.png", "x/Valid/d.png", "Valid/e.png", "f.png", "train\\g.png"]
    assert told(records.splits_together(boxes(names)), "2 of train", "3 of valid") == ("warning", 5, [2, 2, 3])
    assert records.splits_together(boxes(["val/a.png", "valid/b.png", "VALIDATION/c.png", "d.png"])) == []


SIZE, TURNED, WRONG = (64, 48), (48, 64), (32, 24)


@pytest.mark.parametrize(
    ("stated", "explained", "wanted", "texts"),
    [
        ([SIZE] * 20, (), None, ()),
        (
            [WRONG, *[SIZE] * 19],
            (),
            ("error", 1),
            ("the stated size of 1 image is", "0.png is 64 x 48, stated 32 x 24", "left out"),
        ),
        ([*[SIZE] * 20, WRONG], (), ("warning", 1), ("20.png is 64 x 48",)),
        ([TURNED, TURNED, SIZE], (), ("error", 2), ("width and height are exchanged",)),
        ([TURNED, WRONG, SIZE], (), ("error", 2), ("the first: 0.png is 64 x 48, stated 48 x 64",)),
        ([TURNED, WRONG, SIZE], (0,), ("error", 1), ("the first: 1.png",)),
        ([TURNED, SIZE], (0,), None, ()),
        ([(64, np.nan), (np.nan, 48), (64, 47)], (), ("error", 1), ("the first: 2.png",)),
        ([(63, 48), (64, 48)], (), ("error", 1), ("the first: 0.png",)),
    ],
)
def test_stated_sizes_that_are_not_those_of_the_files_are_counted(stated, explained, wanted, texts):
    raw = boxes([f"{n}.png" for n in range(len(stated))], sizes=stated)
    found = told(records.stated_sizes(raw, looks(*[SIZE] * len(stated)), set(explained), "", False), *texts)
    assert (found and found[:2]) == wanted
    if found and "exchanged" not in texts[0]:
        assert (
            "exchanged"
            not in records.stated_sizes(raw, looks(*[SIZE] * len(stated)), set(explained), "", False)[0].message
        )


@pytest.mark.parametrize(
    ("raw_unit", "unit", "evidence", "fix"),
    [
        ("pixels", "pixels", "; the boxes fit the files", "state the size of the files"),
        (
            "pixels",
            "stated",
            "; the boxes fit the stated sizes",
            "state the size of the files, and scale the boxes to it",
        ),
        ("pixels", "", "", "state the size of the files, and scale the boxes to it"),
        ("unit", "unit", "", "state the size of the files"),
        ("norm1000", "norm1000", "", "state the size of the files"),
    ],
)
def test_remedy_of_stated_sizes_follows_what_the_boxes_fit(raw_unit, unit, evidence, fix):
    (found,) = records.stated_sizes(boxes(["a"], sizes=[WRONG], unit=raw_unit), looks(SIZE), set(), unit, True)
    assert (found.evidence.partition("32 x 24")[2], found.fix) == (evidence, fix)


@pytest.mark.parametrize(
    ("stated", "boxes_fit", "code", "figured"),
    [
        ((1, 2, 0), False, "shuffled", [3, 3]),
        ((1, 2, 0), True, "size_mismatch", None),
        ((1, 0, 2), False, "size_mismatch", None),  # two of them
        ((1, 2, 3, 4, 5, 6, 7, 8, 9, 20), False, "shuffled", [9, 10]),  # the list lost a row
        ((1, 2, 3, 4, 5, 6, 7, 8, 20, 21), False, "size_mismatch", None),
        ((1, 1, 1, 1, 1, 1, 1, 1, 1, 2), False, "size_mismatch", None),
    ],
)
def test_sizes_of_other_images_are_shuffled_names(stated, boxes_fit, code, figured):
    raw = boxes([f"{n}" for n in range(len(stated))], sizes=[(100 + n, 50) for n in stated])
    (found,) = records.stated_sizes(raw, looks(*((100 + n, 50) for n in range(len(stated)))), set(), "", boxes_fit)
    assert found.code == code and (figured is None or figures(found.evidence)[:2] == figured)
    assert found.count == sum(n != other for n, other in enumerate(stated))


@pytest.mark.parametrize(
    ("rows", "extra", "row", "times"),
    [
        ([(0, "a", BOX), (0, "a", OTHER), (0, "b", BOX), (1, "a", BOX)], 0, 0, 0),
        ([(1, "a", OTHER), (0, "a", BOX), (1, "a", BOX), (0, "a", BOX), (1, "a", OTHER), (0, "a", BOX)], 3, 0, 2),
        ([(0, "a", BOX), (0, "a", np.add(BOX, (4e-5, 0, 0, 0)))], 1, 0, 2),
        ([(0, "a", BOX), (0, "a", np.add(BOX, (0, 0, 0, 1e-4)))], 0, 0, 0),
        ([(0, "a", (0.0, 1, 2, 3)), (0, "a", (-0.0, 1, 2, 3))], 1, 0, 2),
        ([(0, "a", (1e300, 1, 2, 3))] * 2 + [(0, "a", (2e300, 1, 2, 3))], 1, 0, 2),
        ([(0, "b", OTHER), (1, "a", BOX), (1, "a", BOX), (1, "a", BOX)], 2, 1, 3),
        *(([(0, "a", BOX), (0, "a", [v + (k == side) for k, v in enumerate(BOX)])], 0, 0, 0) for side in range(4)),
    ],
)
def test_box_repeats_another_by_numbers_description_and_image(rows, extra, row, times):
    found = told(records.duplicate_boxes(boxes(["x.png", "y.png"], rows)))
    if not extra:
        assert found is None
        return
    image, label, numbers = rows[row]
    (finding,) = records.duplicate_boxes(boxes(["x.png", "y.png"], rows))
    assert (finding.severity, finding.count, figures(finding.message)) == ("error", extra, [extra, len(rows)])
    assert (
        finding.evidence
        == f"the first: {label!r} at {[float(v) for v in numbers]} occurs {times} times in {'xy'[image]}.png"
    )


def test_repeats_of_few_boxes_are_a_warning():
    rows = [(0, "a", np.add(BOX, n)) for n in range(20)] + [(0, "a", BOX)]
    assert told(records.duplicate_boxes(boxes(["x"], rows)))[:2] == ("warning", 1)


@pytest.mark.parametrize(
    ("counts", "most", "wanted"),
    [
        ((3, 2, 0), 3, None),
        ((4, 0), 3, ("error", 1, [1, 4, 3, 1, 4])),
        ((4, 1), 3, ("warning", 1, [1, 5, 3, 1, 4])),
        ((2, 5, 5), 3, ("error", 4, [4, 12, 3, 2, 5])),
    ],
)
def test_objects_beyond_the_largest_number_are_counted(counts, most, wanted):
    raw = boxes(
        ["a.png", "b.png", "c.png"], [(image, "x", BOX) for image, count in enumerate(counts) for _ in range(count)]
    )
    largest = f"max_objects={max(counts)} in training; coord-data inspect SRC --max-objects {max(counts)}"
    texts = (largest, f"({'abc'[counts.index(max(counts))]}.png)") if wanted else ()
    found = told(records.object_counts(raw, most), *texts)
    assert found == wanted


def annotated(targets=0, crowds=0, **more):
    found = [{"desc": "cat", "bbox": (0.1, 0.1, 0.5, 0.5), "iscrowd": n >= targets} for n in range(targets + crowds)]
    return AnnotationSet((Instance(image="a.png", objects=found),), **more)


@pytest.mark.parametrize(
    ("targets", "crowds", "wanted"),
    [
        (9, 1, None),
        (17, 2, ("warning", 2, [2, 19, 11, 1])),
        (0, 3, ("error", 3, [3, 3, 100, 1])),
        (0, 0, None),
        (5, 0, None),
    ],
)
def test_more_than_a_tenth_of_crowds_is_told(targets, crowds, wanted):
    assert told(records.crowds(annotated(targets, crowds))) == wanted


@pytest.mark.parametrize("note", [NOT_AROUND, AREA_TOO_LARGE])
@pytest.mark.parametrize(("count", "grade"), [(0, None), (1, "warning"), (2, "error")])
def test_boxes_that_contradict_what_is_stated_beside_them_are_a_share_of_the_boxes(note, count, grade):
    found = records.contradicted(annotated(3, notes={note: count, "other": 9}), boxes(["a"], [(0, "x", BOX)] * 40))
    assert [(f.code, f.severity, f.count, figures(f.message)) for f in found] == [
        ("box_and_outline" if note == NOT_AROUND else "box_and_area", grade, count, [count, 40])
    ] * bool(count)


def problem(where, field, is_box=False):
    return Problem(where, field, "m", is_box=is_box)


OBJECT, RECORD = problem("a:1", "objects[0].bbox", True), problem("a:2", "width")


@pytest.mark.parametrize(
    ("problems", "explained", "wanted", "texts"),
    [
        ((), False, None, ()),
        ((OBJECT,), False, ("error", 1), ("1 object is refused (1 bbox)", "the first: a:1")),
        ((OBJECT,), True, None, ()),
        ((problem("a:1", "objects[2].bbox"),), True, None, ()),
        ((OBJECT, RECORD), True, ("error", 1), ("1 record is refused (1 width)", "the first: a:2")),
        ((OBJECT, RECORD), False, ("error", 2), ("1 record and 1 object are refused (1 bbox, 1 width)",)),
        ((RECORD, problem("a:2", "height")), False, ("error", 1), ("1 record is refused (1 width, 1 height)",)),
        (
            (RECORD, problem("a:3", "width"), problem("a:3", "")),
            False,
            ("error", 2),
            ("2 records are refused (2 width, 1 record)",),
        ),
    ],
)
def test_refusals_are_counted_by_record_and_object(problems, explained, wanted, texts):
    raw = boxes(["a"], [(0, "x", BOX)])
    found = told(records.refused(annotated(1, problems=problems), explained, raw), *texts)
    assert (found and found[:2]) == wanted


@pytest.mark.parametrize(
    ("problem", "images", "count", "grade"),
    [(OBJECT, 1, 19, "error"), (OBJECT, 1, 20, "warning"), (RECORD, 19, 200, "error"), (RECORD, 20, 0, "warning")],
)
def test_refused_objects_are_a_share_of_objects_and_records_of_records(problem, images, count, grade):
    raw = boxes([f"{n}" for n in range(images)], [(0, "x", BOX)] * count)
    assert told(records.refused(annotated(1, problems=(problem,)), False, raw))[:2] == (grade, 1)


def test_no_boxes_tells_what_the_reader_counted():
    nothing = annotated(notes={"objects without a box": 2, "empty lines": 1})
    found = told(
        records.no_boxes(nothing, boxes(["a.png", "b.png"])),
        "2 objects without a box; 1 empty line",
        "the first: a.png",
    )
    assert found[:2] == ("error", 2)
    assert records.no_boxes(annotated(problems=(RECORD,)), boxes(["a"])) == []
    assert records.no_boxes(annotated(), boxes(["a"], [(0, "x", BOX)])) == []


@pytest.mark.parametrize(
    ("change", "is_told"),
    [((0, 0, 0), True), ((0.5, 0, 0), False), ((0, 1, 0), True), ((0, 0, 1), False)],
    ids=["whole", "fractions", "far sides", "at 0"],
)
def test_pixels_count_from_1_only_in_whole_numbers_none_of_which_is_0(change, is_told):
    fraction, far, zero = change
    rows = [(0, "x", (1, 5 + n, 40 + n + fraction, 60)) for n in range(5)] + [(0, "x", (7, 1 - zero, 9, 2 + far))]
    found = records.one_off(boxes(["a"], rows))
    assert [(f.severity, f.count, figures(f.evidence)[0]) for f in found] == [("note", 6, 6 - zero)] * is_told
    assert records.one_off(boxes(["a"], rows, unit="unit")) == records.one_off(boxes(["a"])) == []


@pytest.mark.parametrize(
    ("at_one", "at_two", "is_told"),
    [(4, 0, False), (5, 0, True), (5, 2, True), (5, 3, False), (8, 4, True), (8, 5, False)],
)
def test_pixels_count_from_1_where_twice_as_many_sides_are_at_1_as_at_2(at_one, at_two, is_told):
    rows = [(0, "x", (1, 9, 40, 60)) for _ in range(at_one)] + [(0, "x", (8, 2, 40, 60)) for _ in range(at_two)]
    assert bool(records.one_off(boxes(["a"], rows))) is is_told


def labelled(**counts):
    return boxes(["a"], [(0, label.replace("_", " "), BOX) for label, count in counts.items() for _ in range(count)])


def test_spellings_of_a_name_count_all_but_the_most_frequent():
    (found,) = class_names(labelled(Cat=3, cat=5, CAT=2, dog=30))
    assert (found.code, found.severity, found.count) == ("class_names", "error", 5)
    assert found.message.startswith("1 class has") and found.evidence == "'Cat' (3) and 'cat' (5) and 'CAT' (2)"
    (found,) = class_names(labelled(Cat=2, cat=50, Dog=2, dog=50))
    assert (found.severity, found.count) == ("warning", 4) and found.message.startswith("2 classes have")
    assert found.evidence == "'Cat' (2) and 'cat' (50); 'Dog' (2) and 'dog' (50)"
    many = {f"{letter * 3}{end}": 2 for letter in "abcdef" for end in ("", " ")}
    (found,) = class_names(boxes(["a"], [(0, name, BOX) for name, n in many.items() for _ in range(n)]))
    assert found.count == 12 and found.evidence.count(";") == 4


def test_rare_names_are_typing_errors_or_rare_classes():
    found = {f.code: f for f in class_names(labelled(truck=60, truvk=3, person=40, persn=1, horse=1, zebra=1))}
    assert {code: (f.severity, f.count) for code, f in found.items()} == {
        "similar_names": ("warning", 3 + 1),
        "rare_classes": ("note", 2),
    }
    assert found["similar_names"].message.startswith("2 rare class names are one letter")
    assert found["similar_names"].evidence == "'truvk' (3) and 'truck' (60); 'persn' (1) and 'person' (40)"
    assert found["rare_classes"].evidence == "horse, zebra" and figures(found["rare_classes"].message) == [2, 6]
    (one,) = class_names(labelled(truck=40, truvk=2))
    assert (one.severity, one.count) == ("warning", 2) and "1 rare class name is one letter" in one.message
    (one,) = class_names(labelled(truck=5, horse=1))
    assert one.message == "1 of 2 classes occurs once"


@pytest.mark.parametrize("count", [10, 11])
def test_lists_of_names_end_at_ten(monkeypatch, count):
    rare = [f"{chr(97 + n) * 6}" for n in range(count)]
    (found,) = class_names(boxes(["a"], [(0, name, BOX) for name in reversed(rare)]))
    assert found.evidence == ", ".join(rare[:10]) + ", ..." * (count > 10)
    wrong = {name[:-1] + "z": name for name in rare}
    rows = [(0, meant, BOX) for meant in rare for _ in range(20)] + [(0, name, BOX) for name in wrong]
    errors = {f.code: f for f in class_names(boxes(["a"], rows))}["similar_names"]
    assert errors.evidence.count(" and ") == 10 and errors.evidence.endswith("; ...") == (count > 10)


@pytest.mark.parametrize(
    ("ids", "names", "notes", "codes", "count", "told"),
    [
        ((1, 2, 3), ("a", "b", "a"), {}, "same_names", 2, "'a' is the name of the categories 1, 3"),
        ((1, 2, 3, 4, 7), ("a", "b", "b", "a", "b"), {}, "same_names", 5, "2 names belong"),
        (
            (1, 2),
            ("a", "b"),
            {"objects with a sixth number": 2, "other": 9},
            "predictions",
            2,
            "2 objects with a sixth number",
        ),
        ((1, 2), ("a", "A"), {"other": 9}, None, 0, ""),
        ((1,), ("a",), {"field score is not read": 3}, "predictions", 3, "3 field score"),
        ((1,), ("a",), {"columns x, conf are not read": 3}, "predictions", 3, "3 columns"),
        ((1,), ("a",), {"field scored is not read": 3}, None, 0, ""),
    ],
)
def test_annotations_alone_tell_of_names_and_confidences(ids, names, notes, codes, count, told):
    categories = tuple(Category(id=n, name=name) for n, name in zip(ids, names, strict=True))
    found = findings_of_numbers(annotated(4, notes=notes, categories=categories), Path("gone"), 4, None)
    assert [(f.code, f.severity, f.count) for f in found] == [(codes, "warning", count)] * bool(codes)
    assert all(told in f"{f.message}; {f.evidence}" for f in found)


def test_confidences_that_the_reader_notes_are_of_all_boxes():
    (found,) = findings_of_numbers(annotated(4), Path("gone"), 4, None, ["the column confidence is not read"])
    assert (found.code, found.count, found.evidence) == ("predictions", 4, "the column confidence is not read")


def test_reading_of_what_was_prepared_is_told(tmp_path):
    (tmp_path / "b.summary.json").write_text('{"read_as": "xyxy,percent"}')
    (tmp_path / "a.summary.json").write_text('{"read_as": null}')
    for named in (tmp_path, tmp_path / "b.jsonl"):
        (found,) = findings_of_numbers(annotated(4), named, 4, None)
        assert (found.code, found.severity, found.count, found.evidence) == ("reread", "note", 4, "b.summary.json")
        assert "xyxy,percent" in found.message
    assert findings_of_numbers(annotated(4), tmp_path / "a.jsonl", 4, None) == []
    assert findings_of_numbers(annotated(4), tmp_path / "c.jsonl", 4, None) == []


def test_findings_are_sorted_and_written_with_their_pairs():
    rows = [
        Finding("exif", grade, "m", "e", n, "f", read_as="stored")
        for n, grade in enumerate(("note", "error", "warning", "error"))
    ]
    assert [f.count for f in most_severe_first(rows)] == [1, 3, 2, 0]
    assert set(rows[0].to_json()) == {"code", "severity", "message", "evidence", "count", "fix"}
    paired = Finding("leakage", "error", "m", "e", 2, "f", (("a", "b"), ("c", "d")))
    assert paired.to_json()["pairs"] == (("a", "b"), ("c", "d")) and Finding.from_json(paired.to_json()) == paired
    assert names._LISTED == 10 and str(rows[1]) == "error: exif: m [e]; f"
