"""Every row of the table of formats is recognised and read, with every geometry that it carries."""

import pytest
from PIL import Image

from coord_codec import InputError
from coord_data import ReadingRules, load_annotated, open_source
from coord_data.formats.registry import FORMATS, format_table, register_reader
from coord_data.reading.read import read_source
from coord_data.sources.raw import Reading

EXAMPLES = [(name, geometry) for name, row in FORMATS.items() for geometry in row.examples]


def write(folder, example):
    for name, text in example.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / example.image).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (100, 50)).save(folder / example.image)
    return folder / example.named


@pytest.mark.parametrize(("name", "geometry"), EXAMPLES)
def test_example_is_recognised_as_its_format_and_read_with_its_geometry(tmp_path, name, geometry):
    row = FORMATS[name]
    path = write(tmp_path, row.examples[geometry])
    if row.recognise is not None:
        assert open_source(path).format == name
    found = load_annotated(open_source(path, name), ReadingRules(geometry=geometry, format=name))
    (instance,) = found.instances
    (cat,) = instance.objects
    assert found.problems == () and cat.desc == "cat"
    assert not [note for note in found.annotations.notes if note.startswith("objects without a ")]
    if geometry == "box":
        assert cat.bbox == pytest.approx((0.2, 0.2, 0.6, 0.8))
        return
    assert cat.geometry.type == geometry
    around = (0.4, 0.5, 0.4, 0.5) if geometry == "point" else (0.2, 0.2, 0.6, 0.8)
    assert cat.geometry.box == pytest.approx(around)


@pytest.mark.parametrize(("name", "geometry"), [pair for pair in EXAMPLES if pair[1] not in ("box", "point")])
def test_shape_is_read_as_its_box_where_boxes_are_wanted(tmp_path, name, geometry):
    path = write(tmp_path, FORMATS[name].examples[geometry])
    (instance,) = read_source(path, format=name).annotations.instances
    (cat,) = instance.objects
    assert cat.bbox == pytest.approx((0.2, 0.2, 0.6, 0.8))


@pytest.mark.parametrize(("name", "geometry"), [pair for pair in EXAMPLES if pair[1] == "point" and pair[0] != "jsonl"])
def test_point_is_refused_where_boxes_are_wanted(tmp_path, name, geometry):
    path = write(tmp_path, FORMATS[name].examples[geometry])
    (problem,) = read_source(path, format=name, on_bad_box="drop_box").annotations.problems
    assert "the geometry point reads it" in problem.message


def test_names_of_formats_are_those_of_the_table():
    for name in ("auto", *FORMATS):
        assert ReadingRules(format=name).format == name
    with pytest.raises(ValueError, match=r"expected auto or one of voc, .*, found 'cocoa'"):
        ReadingRules(format="cocoa")
    lines = format_table().splitlines()
    assert [line.split("`")[1] for line in lines[2:]] == list(FORMATS)


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        *[(name, True) for name in ("_annotations.coco.json", "instances.json", "instances_val2017.json")],
        ("instances_default.JSON", True),
        ("a.json", False),
    ],
)
def test_coco_file_is_told_from_other_files_of_its_folder_by_its_name(tmp_path, name, is_read):
    (tmp_path / name).write_text(FORMATS["coco"].examples["box"].files["a.json"])
    (tmp_path / "_made.json").write_text('{"made": "today"}')
    if is_read:
        assert open_source(tmp_path).path == tmp_path / name
    else:
        with pytest.raises(InputError, match="name one of the files"):
            open_source(tmp_path)


def test_registered_reader_is_tried_first_and_takes_no_example_away(tmp_path):
    path = write(tmp_path, FORMATS["csv"].examples["box"])
    row = register_reader("mine", lambda source, images: Reading([], source.path.parent), lambda source: True)
    try:
        assert next(iter(FORMATS)) == "mine" and open_source(path).format == "mine"
        assert ReadingRules(format="mine").format == "mine"
        with pytest.raises(ValueError, match="there is one of this name already"):
            register_reader("mine", row.read)
    finally:
        FORMATS.remove("mine")
    assert open_source(path).format == "csv"
