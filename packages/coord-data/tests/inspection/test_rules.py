"""The rules of an inspection: one record for options and arguments; and the table of the codes of findings."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import coord_data
from coord_codec import InputError
from coord_data import ReadingRules
from coord_data.cli import app
from coord_data.finding import Finding
from coord_data.finding_codes import FINDING_CODES, SUBJECTS, FindingCode, code_table
from coord_data.inspection.examine import evidence_of
from coord_data.inspection.rules import InspectionRules

SIDES = {"a.png": (64, 48), "b.png": (31, 64), "c.png": (64, 32), "d.png": (20, 20)}


@pytest.fixture
def records(tmp_path):
    lines = []
    for number, (name, size) in enumerate(SIDES.items()):
        Image.effect_noise(size, 40 + number).convert("RGB").save(tmp_path / name)
        objects = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}] * (number + 1)
        lines.append(json.dumps({"image": name, "objects": objects}))
    (tmp_path / "instances.jsonl").write_text("\n".join(lines))
    return tmp_path / "instances.jsonl"


@pytest.mark.parametrize(
    ("least", "left"), [(0, "abcd"), (20, "abcd"), (21, "abc"), (31, "abc"), (32, "ac"), (33, "a"), (48, "a")]
)
def test_images_with_a_short_side_are_left_out_and_counted(records, least, left):
    names = {f"{letter}.png" for letter in left}
    found = coord_data.inspect(records, min_side=least)
    told = [finding for finding in found.findings if finding.code == "small_images"]
    assert {*found.raw.files} == {instance.image for instance in found.annotations.instances} == names
    assert [finding.count for finding in told] == ([4 - len(left)] if len(left) < 4 else [])
    assert len(found.raw) == sum(n + 1 for n, name in enumerate(SIDES) if name in names)
    assert len(found.files) == len(left)
    repeated = [finding.count for finding in found.findings if finding.code == "duplicates"]
    assert repeated == ([sum(n for n, name in enumerate(SIDES) if name in names)] if names - {"a.png"} else [])


def test_side_that_leaves_no_image_is_told(records):
    with pytest.raises(InputError, match=r"min_side: .*4 images with a side below 49"):
        coord_data.inspect(records, min_side=49)


def test_image_with_as_many_objects_as_a_target_may_have_has_none_beyond(records):
    (told,) = (f for f in coord_data.inspect(records, max_objects=3).findings if f.code == "too_many_objects")
    assert told.count == 1 and told.evidence.startswith("1 image has more objects, up to 4 (d.png)")


def test_command_and_page_leave_out_what_python_does(records, tmp_path):
    words = ["inspect", str(records), "--min-side", "32", "--out", str(tmp_path / "out"), "--workers", "1"]
    CliRunner().invoke(app, words)
    rows = json.loads((tmp_path / "out" / "findings.json").read_text())
    of_python = coord_data.inspect(records, min_side=32).findings
    assert [(row["code"], row["count"]) for row in rows] == [(f.code, f.count) for f in of_python]
    page = (tmp_path / "out" / "inspect.html").read_text()
    assert "small_images" in page and "d.png" not in page.replace("the first: d.png", "")


@pytest.mark.slow
def test_held_out_images_with_a_short_side_are_not_compared(records, tmp_path):
    large = Image.effect_noise((8, 6), 90).resize((64, 48))
    large.save(tmp_path / "a.png")
    large.resize((20, 15)).save(tmp_path / "e.png")  # of which the set has a larger copy
    (tmp_path / "held.jsonl").write_text(records.read_text().splitlines()[0].replace("a.png", "e.png"))
    found = {least: coord_data.inspect(records, heldout=tmp_path / "held.jsonl", min_side=least) for least in (0, 32)}
    assert {least: any(f.code == "leakage" for f in one.findings) for least, one in found.items()} == {
        0: True,
        32: False,
    }


def test_evidence_of_some_images_is_that_of_a_file_with_these_alone(records, tmp_path):
    whole = evidence_of(records)
    part = whole.of_images(np.array([True, False, True, False]))
    lines = records.read_text().splitlines()
    (tmp_path / "part.jsonl").write_text("\n".join([lines[0], lines[2]]))
    alone = evidence_of(tmp_path / "part.jsonl")
    assert [*part.raw.files] == [*alone.raw.files] and [*part.annotations.instances] == [*alone.annotations.instances]
    np.testing.assert_array_equal(part.raw.numbers_N4, alone.raw.numbers_N4)
    np.testing.assert_array_equal(part.raw.image_N, alone.raw.image_N)
    assert [file.digest for file in part.files] == [file.digest for file in alone.files]


def test_every_field_of_the_rules_is_an_argument_and_unknown_ones_are_named(records):
    for name in InspectionRules.model_fields:
        with pytest.raises((InputError, TypeError), match=name if name != "images" else ""):
            coord_data.inspect(records, **{name: object()})
    with pytest.raises(InputError, match="min_side"):
        coord_data.inspect(records, smallest=3)


def test_rules_of_reading_keep_what_was_stated():
    read_by = ReadingRules(format="yolo", read_as="xyxy,percent", allow_outside=True)
    rules = InspectionRules.of(read_by, max_objects=3, min_side=None)
    assert (rules.format, rules.read_as, rules.allow_outside) == ("yolo", read_by.read_as, True)
    assert (rules.max_objects, rules.min_side) == (3, 0) and InspectionRules.of(rules) is rules


def test_argument_that_is_0_replaces_what_the_rules_state():
    assert InspectionRules.of(InspectionRules(min_side=32, max_objects=3), min_side=0) == InspectionRules(max_objects=3)


def test_finding_has_a_row_of_the_table_and_one_of_its_grades():
    for code, row in FINDING_CODES.items():
        assert row.subject in SUBJECTS and row.words
        for severity in ("error", "warning", "note"):
            if severity in row.grades:
                assert Finding(code, severity, "m", "e", 1, "f").severity == severity
            else:
                with pytest.raises(ValueError, match=code):
                    Finding(code, severity, "m", "e", 1, "f")
    with pytest.raises(ValueError, match="FINDING_CODES"):
        Finding("blurred", "note", "m", "e", 1, "f")


def test_check_of_a_user_adds_its_code():
    FINDING_CODES.add("blurred", FindingCode("files", ("note",), "images are blurred"))
    try:
        assert "`blurred`" in code_table() and str(Finding("blurred", "note", "m", "e", 1, "f")).startswith("note")
    finally:
        FINDING_CODES.remove("blurred")


def test_codes_in_the_source_are_those_of_the_table():
    source = Path(coord_data.__file__).parent
    text = "".join(file.read_text() for file in source.rglob("*.py") if file.name != "finding_codes.py")
    unused = [code for code, row in FINDING_CODES.items() if f'"{code}"' not in text and row.subject != "tokens"]
    assert [code for code in unused if code not in ("mirrored", "upside_down", "rotated")] == []


def test_names_that_look_alike_are_told_by_their_code_points(tmp_path):
    Image.effect_noise((64, 48), 40).convert("RGB").save(tmp_path / "a.png")
    boxes = [{"desc": name, "bbox": [0.1, 0.2, 0.5, 0.6]} for name in ("caf\u00e9", "cafe\u0301")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"image": "a.png", "objects": boxes}))
    (told,) = [
        finding for finding in coord_data.inspect(tmp_path / "a.jsonl").findings if finding.code == "class_names"
    ]
    assert "'caf\\xe9'" in told.evidence and "'cafe\\u0301'" in told.evidence
