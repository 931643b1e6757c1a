"""LabelMe and VGG Image Annotator: shapes in pixels that count from 0."""

import base64
import json

import numpy as np
import pytest
from PIL import Image

from coord_codec import InputError
from coord_data import load_annotated, open_source
from coord_data.reading.read import read_source

SIZE = (200, 100)


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", SIZE).save(tmp_path / f"{name}.png")
    return tmp_path


def write_labelme(path, *shapes, **more):
    rows = [{"label": "cat", "points": points, "shape_type": kind, "flags": {}} for kind, *points in shapes]
    document = {"version": "5.4.1", "flags": {}, "shapes": rows, "imagePath": f"{path.stem}.png", "imageData": None}
    path.write_text(json.dumps(document | {"imageHeight": SIZE[1], "imageWidth": SIZE[0]} | more))
    return path


def boxes(annotations):
    pixels = np.array([*SIZE, *SIZE])
    return [(item.desc, *np.round(item.bbox * pixels, 6)) for i in annotations.instances for item in i.objects]


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        (("rectangle", [60, 40], [20, 10]), (20, 10, 60, 40)),  # corners in any order
        (("rectangle", [20, 10], [60, 10], [60, 40], [20, 40]), (20, 10, 60, 40)),
        (("polygon", [20, 10], [60, 12], [55, 40]), (20, 10, 60, 40)),
        (("circle", [50, 40], [53, 44]), (45, 35, 55, 45)),
    ],
)
def test_labelme_shape_is_the_box_around_it(folder, shape, box):
    write_labelme(folder / "a.json", shape)
    write_labelme(folder / "b.json")
    for source, images in ((folder, 2), (folder / "a.json", 1)):
        found = read_source(source)
        assert found.format == "labelme" and not found.annotations.problems
        assert boxes(found.annotations) == [("cat", *box)]
        assert len(found.annotations.instances) == images


@pytest.mark.parametrize(
    "sheared", [[[20, 10], [60, 10], [70, 40], [30, 40]], [[20, 10], [60, 20], [60, 50], [20, 40]]]
)
def test_labelme_rectangle_whose_corners_are_turned_is_an_outline(folder, sheared):
    write_labelme(folder / "a.json", ("rectangle", *sheared))
    (record,) = read_source(folder / "a.json", geometry="polygon").annotations.instances
    found = np.reshape(record.objects[0].geometry.coordinates, (4, 2)) * SIZE
    assert sorted(map(tuple, np.round(found, 6).tolist())) == sorted(map(tuple, sheared))


@pytest.mark.parametrize("inside", ["", 3, "no base64!"])
def test_labelme_file_that_says_nothing_of_its_pixels_has_its_image_beside_it(folder, inside):
    write_labelme(folder / "a.json", ("rectangle", [20, 10], [60, 40]), imageData=inside)
    found = read_source(folder / "a.json")
    assert boxes(found.annotations) == [("cat", 20, 10, 60, 40)] and not found.annotations.problems
    (folder / "a.png").unlink()
    with pytest.raises(InputError):
        load_annotated(folder / "a.json")


def test_labelme_polygon_keeps_its_vertices(folder):
    write_labelme(folder / "a.json", ("polygon", [20, 10], [60, 12], [55, 40]))
    (record,) = read_source(folder / "a.json", geometry="polygon").annotations.instances
    assert sorted(record.objects[0].geometry.coordinates) == pytest.approx(
        sorted([20 / 200, 10 / 100, 60 / 200, 12 / 100, 55 / 200, 40 / 100])
    )


@pytest.mark.parametrize("shape", [("line", [20, 10], [60, 40]), ("mask", [20, 10], [60, 40]), ("rectangle", [20, 10])])
def test_labelme_shape_of_another_kind_is_a_problem(folder, shape):
    write_labelme(folder / "a.json", shape)
    (problem,) = read_source(folder / "a.json").annotations.problems
    assert shape[0] in problem.message


def test_labelme_image_is_found_by_its_name(folder):
    write_labelme(folder / "a.json", ("rectangle", [20, 10], [60, 40]), imagePath="..\\photos\\a.png")
    (record,) = read_source(folder / "a.json").annotations.instances
    assert record.image == "a.png"
    for name in ("photos", "old"):
        (folder / name).mkdir()
        Image.new("RGB", SIZE).save(folder / name / "c.png")
    write_labelme(folder / "a.json", ("rectangle", [20, 10], [60, 40]), imagePath="photos\\c.png")
    (record,) = read_source(folder / "a.json").annotations.instances
    assert record.image == "photos/c.png"


@pytest.mark.parametrize("others", [1, 9, 30])
def test_labelme_folder_is_recognised_beside_other_files_whose_names_come_first(folder, others):
    for n in range(others):
        (folder / f"_{n:02}.json").write_text('{"made": "today"}')
    for n in range(max(2, others // 2)):
        write_labelme(folder / f"a{n}.json", ("rectangle", [20, 10], [60, 40]), imagePath="a.png")
    assert open_source(folder).format == "labelme"


def test_labelme_parts_of_a_group_are_one_object_and_ignore_is_no_class(folder):
    parts = [("cat", 1, [20, 10], [60, 40]), ("cat", 1, [50, 30], [90, 45]), ("dog", 1, [100, 50], [120, 60])]
    parts += [("cat", None, [150, 50], [160, 60]), ("cat", None, [170, 50], [180, 60])]
    parts += [("__ignore__", 7, [0, 0], [9, 9])]
    rows = [
        {"label": label, "points": points, "shape_type": "rectangle", "group_id": group}
        for label, group, *points in parts
    ]
    write_labelme(folder / "a.json", shapes=rows)
    found = read_source(folder / "a.json").annotations
    expected = {
        ("cat", 20, 10, 90, 45),
        ("dog", 100, 50, 120, 60),
        ("cat", 150, 50, 160, 60),
        ("cat", 170, 50, 180, 60),
    }
    assert set(boxes(found)) == expected and not found.problems
    assert len([note for note in found.notes if "__ignore__" in note or "group_id" in note]) == 2


def test_labelme_file_with_its_pixels_inside_is_readable_without_its_image(folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    inside = base64.b64encode((folder / "a.png").read_bytes()).decode()
    (folder / "a.png").unlink()
    write_labelme(folder / "a.json", ("rectangle", [20, 10], [60, 40]), imageData=inside)
    write_labelme(folder / "b.json", ("rectangle", [20, 10], [60, 40]))
    found = load_annotated(folder)
    assert {i.image: len(i.objects) for i in found.instances} == {"a.png": 1, "b.png": 1} and not found.problems
    assert "imageData" in found.notes[0]


def write_via(path, *shapes, attributes=None, project=False):
    regions = [{"shape_attributes": shape, "region_attributes": attributes or {"label": "cat"}} for shape in shapes]
    images = {"a.png9": {"filename": "a.png", "size": 9, "regions": regions, "file_attributes": {}}}
    path.write_text(json.dumps({"_via_settings": {}, "_via_img_metadata": images} if project else images))
    return path


VIA = [
    ({"name": "rect", "x": 20, "y": 10, "width": 40, "height": 30}, (20, 10, 60, 40)),
    ({"name": "polygon", "all_points_x": [20, 60, 55], "all_points_y": [10, 12, 40]}, (20, 10, 60, 40)),
    ({"name": "circle", "cx": 50, "cy": 40, "r": 5}, (45, 35, 55, 45)),
    ({"name": "ellipse", "cx": 50, "cy": 40, "rx": 20, "ry": 5}, (30, 35, 70, 45)),
    ({"name": "ellipse", "cx": 50, "cy": 40, "rx": 20, "ry": 5, "theta": np.pi / 2}, (45, 20, 55, 60)),
]


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize(("shape", "box"), VIA)
def test_via_region_is_the_box_around_it(folder, shape, box, project):
    found = read_source(write_via(folder / "a.json", shape, project=project))
    assert found.format == "via" and not found.annotations.problems
    assert boxes(found.annotations) == [("cat", *map(pytest.approx, box))]


@pytest.mark.parametrize(
    "attributes",
    [{"class": "cat"}, {"Label": "cat", "occluded": "no"}, {"breed": "cat"}, {"type": {"cat": True, "dog": False}}],
)
def test_via_description_is_the_attribute_of_that_meaning(folder, attributes):
    found = read_source(write_via(folder / "a.json", VIA[0][0], attributes=attributes))
    assert [desc for desc, *_ in boxes(found.annotations)] == ["cat"]


def test_via_polyline_is_a_problem(folder):
    line = {"name": "polyline", "all_points_x": [20, 60], "all_points_y": [10, 12]}
    (problem,) = read_source(write_via(folder / "a.json", line)).annotations.problems
    assert "polyline" in problem.message


def test_entry_that_is_none_and_image_of_two_places_are_problems(folder):
    for name in ("one", "two"):
        (folder / name).mkdir()
        Image.new("RGB", SIZE).save(folder / name / "c.png")
    entries = {"x": 5, "y": {"filename": "c.png", "regions": []}}
    (folder / "a.json").write_text(json.dumps({"_via_img_metadata": entries}))
    (folder / "a.csv").write_text("image,label,x1,y1,x2,y2\nc.png,cat,20,10,60,40\n")
    none, *several = [
        p.message for name in ("a.json", "a.csv") for p in read_source(folder / name).annotations.problems
    ]
    assert "expected an object with filename" in none
    assert ["expected one file, found" in message for message in several] == [True, True]


WRITERS = {
    "Label Studio": "<owner><flickrid>NULL</flickrid><name>Label Studio</name></owner>",
    "darwin-py": "<source><database>darwin</database></source>",
    "X-AnyLabeling": "<source><database>https://example.org/X-AnyLabeling</database></source>",
}


@pytest.mark.parametrize("writer", [*WRITERS, "pylabel", ""])
def test_whole_number_voc_counts_from_where_its_writer_does(folder, writer):
    flags = "<pose/><truncated/><difficult/>" if writer == "pylabel" else "<truncated>0</truncated>"
    box = "<xmin>20</xmin><xmax>60</xmax><ymin>10</ymin><ymax>40</ymax>"
    size = f"<size><width>200</width><height>100</height><depth>{'' if writer == 'pylabel' else 3}</depth></size>"
    cat = f"<object><name>cat</name>{flags}<bndbox>{box}</bndbox></object>"
    text = f"<annotation><filename>a.png</filename>{WRITERS.get(writer, '')}{size}{cat}</annotation>"
    (folder / "a.xml").write_text(text)
    assert boxes(read_source(folder / "a.xml").annotations) == [
        ("cat", *((20, 10, 60, 40) if writer else (19, 9, 60, 40)))
    ]
