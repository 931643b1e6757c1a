"""Class numbers that are all shifted by one against the class names are named, in YOLO labels and COCO files."""

import json
from dataclasses import replace

import pytest
from planted import DataSource, centred, told
from yolo_files import write_yolo

from coord_data.inspection.numbers.class_numbers import shifted_classes
from coord_data.sources.raw_boxes import ClassNumbers, class_numbers_of_coco


@pytest.mark.slow
@pytest.mark.parametrize("names", [["a thing"], ["a thing", "box"], ["a thing", "box", "circle"]])
def test_yolo_classes_counted_from_1_are_named(clean, tmp_path, names):
    turned = iter(range(1000))
    labels = [[names[next(turned) % len(names)] for _ in row] for row in clean.labels]
    draft = replace(clean, labels=labels, layout=centred)
    write_yolo(draft, tmp_path, first=1)
    codes, found = told(DataSource(tmp_path))
    assert "class_numbers" in codes
    (finding,) = [f for f in found.findings if f.code == "class_numbers"]
    assert finding.count == sum(map(len, labels)) and f"have class {len(names)}, names go from 0" in finding.evidence
    assert "subtract 1 from the class" in finding.fix
    line = finding.fix.partition("`")[2].rstrip("`")
    (tmp_path / "data.yaml").write_text(line)  # the line that it says
    assert told(DataSource(tmp_path))[0] == set()


@pytest.mark.parametrize(
    ("used", "ids", "way"),
    [
        ({1: 3, 2: 4, 3: 1}, (0, 1, 2), "high"),
        ({0: 3, 1: 4, 2: 1}, (1, 2, 3), "low"),
        ({0: 3, 1: 4, 3: 1}, (0, 1, 2), None),  # the first one occurs: that one number is wrong
        ({1: 3, 2: 4}, (0, 1, 2), None),  # the first one may just be rare
        ({1: 3, 2: 4, 7: 1}, (0, 1, 2), None),  # not the next
        ({1: 3, 2: 4, 3: 1, 7: 1}, (0, 1, 2), None),  # not all of them by one
        ({0: 3, 1: 4, 2: 1, -1: 1}, (0, 1, 2), None),
        ({2: 3, 4: 4, 10: 1}, (1, 2, 5, 9), None),  # 4 has no name, and neither has the one before it
        ({2: 3, 3: 4, 6: 4, 10: 1}, (1, 2, 5, 9), "high"),  # names leave numbers out, as COCO's do
        ({0: 3, 4: 4, 8: 1}, (1, 2, 5, 9), "low"),
        ({0: 3, 4: 4, 9: 1}, (1, 2, 5, 9), None),  # the last one occurs
        ({}, (0, 1, 2), None),
    ],
)
def test_coco_categories_of_other_numbers_are_named_where_all_are_shifted(used, ids, way):
    document = {
        "categories": [{"id": n, "name": f"c{n}"} for n in ids],
        "annotations": [{"category_id": n} for n, count in used.items() for _ in range(count)],
    }
    found = shifted_classes(class_numbers_of_coco(document))
    assert [f"one too {way}" in f.message for f in found] == [True] * (way is not None)
    assert all("the category_id of each annotation" in f.fix for f in found)


def test_line_for_names_is_short_for_many_classes_and_has_no_number_below_0():
    many = {number: f'the "{number}"' for number in range(80)}
    (finding,) = shifted_classes(ClassNumbers({1: 5, 80: 2}, many))
    assert finding.fix.endswith(r'`names: {1: "the \"0\"", 2: "the \"1\"", ..., 80: "the \"79\""}`')
    (finding,) = shifted_classes(ClassNumbers({-1: 5, 0: 2}, many))
    assert finding.fix == "add 1 to the class of each object"


@pytest.mark.slow
@pytest.mark.parametrize("lvis", [False, True])
def test_coco_file_with_shifted_categories_is_examined(clean, tmp_path, lvis):
    source = replace(clean, coco=True).write(tmp_path)

    document = json.loads(source.annotations.read_text())
    for row in document["images"] if lvis else ():
        row["coco_url"] = f"http://nowhere/{source.images.name}/{row.pop('file_name')}"
    last = max(row["id"] for row in document["categories"])
    document["annotations"] = [
        row | {"category_id": row["category_id"] - 1} for row in document["annotations"] if row["category_id"] <= last
    ]
    source.annotations.write_text(json.dumps(document))
    assert "class_numbers" in told(source)[0]
