"""The commands in Python: the results of the command line, in objects that a notebook shows."""

import json

import pytest
from PIL import Image

import coord_data
from coord_codec import InputError


@pytest.fixture
def annotations(tmp_path):
    images = [{"id": n, "file_name": f"{n}.png", "width": 64, "height": 48} for n in range(1, 13)]
    boxes = [{"id": n, "image_id": n, "category_id": 7, "bbox": [8, 8, 20 + n, 20]} for n in range(1, 13)]
    document = {"images": images, "annotations": boxes, "categories": [{"id": 7, "name": "<cat>"}]}
    (tmp_path / "images").mkdir()
    for n in range(1, 13):
        Image.effect_noise((64, 48), 8 * n).save(tmp_path / "images" / f"{n}.png")
    (tmp_path / "a.json").write_text(json.dumps(document))
    return tmp_path / "a.json"


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_load_reads_what_load_annotated_does_and_shows_itself(annotations, kind):
    loaded = coord_data.load(kind(annotations))
    rules = coord_data.ReadingRules(images=annotations.parent / "images")
    assert loaded.instances == coord_data.load_annotated(annotations, rules).instances and len(loaded) == 12
    html = loaded._repr_html_()
    assert "&lt;cat&gt;" in html and "<cat>" not in html


def test_inspect_has_the_findings_of_examine_and_shows_them(annotations):
    found = coord_data.inspect(annotations)
    rules = coord_data.ReadingRules(images=annotations.parent / "images")
    assert list(found.findings) == coord_data.examine(annotations, rules)
    html = found._repr_html_()
    assert all(finding.code in html for finding in found.findings)


def test_prepare_returns_what_it_wrote(annotations, tmp_path):
    prepared = coord_data.prepare(str(annotations), tmp_path / "out", split=0.5, images=tmp_path / "images")
    lines = {name: (prepared.out / name).read_text().splitlines() for name in prepared.summaries}
    assert {name: summary["records"] for name, summary in prepared.summaries.items()} == {
        name: len(rows) for name, rows in lines.items()
    }
    assert sum(map(len, lines.values())) == 12 and all(name in prepared._repr_html_() for name in lines)
    single = coord_data.prepare([annotations, tmp_path / "images"], tmp_path / "one.jsonl")
    assert single.summaries["one.jsonl"]["records"] == 12 and "one.jsonl" in repr(single)
    with pytest.raises(InputError, match="exists already"):
        coord_data.prepare(annotations, tmp_path / "out")


@pytest.mark.parametrize(
    ("call", "named", "told"),
    [
        (coord_data.load, {"fromat": "yolo"}, "fromat: no such rule; known are .*on_bad_box"),
        (coord_data.load, {"split": "train"}, "split: no such rule; .*; use the split's file or folder"),
        (coord_data.inspect, {"on_bad_box": "maybe"}, "on_bad_box: "),
        (coord_data.load, {"images": "nowhere"}, "nowhere"),
    ],
)
def test_rule_that_does_not_exist_is_named(annotations, call, named, told):
    with pytest.raises(InputError, match=told):
        call(annotations, **named)
