"""The commands in Python: the results of the command line, in objects that a notebook shows."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest
from one_image import picture
from PIL import Image

import coord_data
from coord_codec import InputError
from coord_data import ReadingRules
from coord_data.finding import Finding, by_share, most_severe_first, write_findings


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


@pytest.mark.slow
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


def test_sources_and_images_at_addresses_are_copied_and_rules_are_given_once(annotations, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    system = pytest.importorskip("fsspec").filesystem("memory")
    for path in tmp_path.rglob("*.*"):
        system.pipe(f"/far/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())
    images = {"images": "memory://far/images"}
    assert (
        coord_data.prepare("memory://far/a.json", tmp_path / "out", **images).summaries["instances.jsonl"]["boxes"]
        == 12
    )
    monkeypatch.setattr("coord_data.api.examine_named", lambda source, rules, held: (source, rules, held))
    read = coord_data.inspect("memory://far/a.json", **images)
    assert read[0].path.read_bytes() == annotations.read_bytes() and read[1].images.name != "images"
    for more in ({"images": tmp_path / "images"}, {"strict": True}):
        with pytest.raises(InputError, match=f"data: it has all rules; put {next(iter(more))} into it"):
            coord_data.prepare(annotations, tmp_path / "x", ReadingRules(images=tmp_path / "images"), **more)
    with pytest.raises(InputError, match="data: it has all rules; put strict into it"):
        coord_data.prepare(annotations, tmp_path / "x", ReadingRules(), strict=False, images=tmp_path / "images")
    assert not (tmp_path / "x").exists()
    system.rm("/far", recursive=True)


def test_held_out_annotations_are_read_by_the_same_rules_with_images_of_their_own(annotations, tmp_path, monkeypatch):
    monkeypatch.setattr("coord_data.api.examine_named", lambda source, rules, held: (source, rules, held))
    shutil.copytree(tmp_path / "images", tmp_path / "held")
    shutil.copy(annotations, tmp_path / "held" / "a.json")
    images, held = (
        {"images": tmp_path / "images", "classes": ("<cat>",), "read_as": "xywh"},
        tmp_path / "held" / "a.json",
    )
    source, rules, found = coord_data.inspect(annotations, heldout=str(held), **images)
    assert (source.path, rules.images, rules.read_as) == (annotations, tmp_path / "images", "xywh")
    assert (found.named, found.root, found.base) == (held, held.parent, held.parent) and found.files[0].size == (64, 48)
    assert coord_data.inspect(annotations, **images)[2] is None


@pytest.mark.parametrize("call", [coord_data.load, coord_data.inspect])
def test_fields_and_format_are_passed_on(tmp_path, monkeypatch, call):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    picture(1).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    boxes = {"bbox": [[4, 4, 32, 32]], "category": ["cat"], "label": ["dog"]}
    pa.parquet.write_table(pa.table({"image": [content], "objects": [boxes]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="--fields label="):
        call(tmp_path / "a.parquet")
    evidence = call(tmp_path / "a.parquet", fields="label=label")
    (tmp_path / "a.csv").write_text("image,label,xmin,ymin,xmax,ymax\na.png,cat,4,4,32,32\n")
    with pytest.raises(InputError, match=r"YOLO|yolo|data\.yaml"):
        call(tmp_path / "a.csv", format="yolo")
    if call is coord_data.load:
        assert [o.desc for i in evidence.instances for o in i.objects] == ["dog"]
        other = call(tmp_path / "a.parquet", fields="label=category")  # unpacked anew, not what was chosen before
        assert [o.desc for i in other.instances for o in i.objects] == ["cat"]


def test_findings_are_graded_by_their_share_sorted_and_written_as_they_are_read(tmp_path):
    shares = [by_share(count, total) for count, total in ((4, 100), (5, 100), (0, 0), (1, 0), (1, 21), (1, 20))]
    assert shares == ["warning", "error", "warning", "error", "warning", "error"]
    rows = [
        Finding("exif", "note", "a", "e", 1, "f"),
        Finding("leakage", "error", "b", "e", 2, "f", (("a", "b"),)),
        Finding("exif", "note", "c", "e", 3, "f", read_as="xyxy"),
        Finding("leakage", "warning", "ü", "e", 4, "f"),
    ]
    ordered = most_severe_first(rows)
    assert [finding.message for finding in ordered] == ["b", "ü", "a", "c"]
    write_findings(tmp_path / "f.json", ordered)
    text = (tmp_path / "f.json").read_text(encoding="utf-8")
    stated = json.loads(text)
    assert ["pairs" in row for row in stated] == [True, False, False, False] and "ü" in text
    assert not any("read_as" in row for row in stated)
    assert [Finding.from_json(row) for row in stated[:3]] == ordered[:3]
    with pytest.raises(ValueError, match=r"finding 'exif': expected one of .*found 'fatal'"):
        Finding("exif", "fatal", "a", "e", 1, "f")
    with pytest.raises(ValueError, match="which has none of this name"):
        Finding("nothing", "note", "a", "e", 1, "f")
