"""What is common to all formats that are read into records."""

from pathlib import Path

import pytest
from PIL import Image

from coord_codec import Problem
from coord_data.formats.collect import IGNORED, REFUSED, collect
from coord_data.reading.read import read_source
from coord_data.sources.raw import RawImage, RawObject, Reading


@pytest.mark.parametrize("box", ["10,10,10.01,10.01", "90,90,20,20", "10,10,900,90"])
def test_refused_object_is_not_taken_for_absent(tmp_path, box):
    """Else a query for it would teach that it is not there: too small to say, swapped, outside of the image."""
    Image.new("RGB", (100, 100)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text(f"image,xmin,ymin,xmax,ymax,label\na.png,0,0,50,50,cat\na.png,{box},dog\n")
    (instance,) = read_source(tmp_path / "t.csv", None, "csv", on_bad_box="drop_box").annotations.instances
    assert [o.desc for o in instance.objects] == ["cat"] and instance.uncertain == ["dog"]


@pytest.mark.parametrize(
    "refused",
    [
        RawObject("dog", (10, 10, 900, 90), "b"),
        RawObject("dog", (-1, 10, 50, 10.001), "b", ignored=True),
        RawObject("dog", (-1, 10, 50, 90), "b", fault="unknown class"),
        RawObject("", (-1, 10, 50, 90), "b"),
        RawObject("dog", (-1, 10, 50, 90), "b", outlines=([0, 0, 9, 9],)),
        RawObject("dog", (-1, 10, 50, 90), "b", outlines=([-1, 0, 400, 0, 9, 9], [0, 0, 1, 1, 0, 1])),
    ],
)
def test_refused_object_is_in_no_other_count(refused):
    """Each would be clipped, ignored or noted too."""
    refused = refused._replace(notes=("occluded objects",), as_box=("outlines",))
    own = [RawObject("cat", (-0.5, 0, 50, 50), "a", notes=("occluded objects",))]
    for geometry in ("box", "polygon"):
        images = [RawImage("a.png", "a", objects, (100, 100), notes=("images",)) for objects in (own, [*own, refused])]
        wanted, found = (collect(Reading([i], Path()), "drop_box", {}.get, geometry) for i in images)
        assert len(wanted.notes) == 3 + (geometry == "polygon")
        if found.problems:
            assert found.notes == wanted.notes
        else:
            assert geometry == "box" and refused.outlines


INSIDE, OUT, SMALL = (10, 10, 50, 50), (10, 10, 900, 90), (10, 10, 10.01, 10.01)


@pytest.mark.parametrize("on_bad_box", ["drop_image", "drop_box"])
@pytest.mark.parametrize(
    ("refused", "leaves_image"),
    [
        (RawObject("dog", OUT, "b"), False),
        (RawObject("dog", INSIDE, "b", fault="unknown class"), False),
        (RawObject("", INSIDE, "b"), False),
        (RawObject("dog", (1, 2, 3), "b"), False),
        (RawObject("dog", (1, 2, 3, float("inf")), "b"), False),
        (RawObject("dog", (5, 5, 5, 5), "b", is_point=True), False),
        (RawObject("dog", SMALL, "b"), True),
        (RawObject("dog", OUT, "b", ignored=True), True),
    ],
)
def test_only_a_faulty_target_of_some_size_takes_its_image_away(on_bad_box, refused, leaves_image):
    """Objects too small to say and crowds are left out alone; none is told to be absent."""
    objects = [RawObject("cat", INSIDE, "a", ignored=True), RawObject("cat", INSIDE, "a"), refused]
    images = [RawImage(f"{name}.png", name, objects, (100, 100), image_id=f"{name}1") for name in "ab"]
    found = collect(Reading(images, Path()), on_bad_box, {}.get)
    is_left = leaves_image or on_bad_box == "drop_box"
    assert [i.image for i in found.instances] == ["a.png", "b.png"] * is_left
    assert [(problem.where, problem.is_box) for problem in found.problems] == [("b", True), ("b", True)]
    assert found.notes == {IGNORED: 2} | ({} if is_left else {REFUSED: 2})
    told = [refused.desc] if refused.desc else None
    assert all((instance.model_extra or {}).get("uncertain") == told for instance in found.instances)


def test_fields_of_a_record_are_kept_and_counts_are_of_all_images():
    objects = [RawObject("dog", INSIDE, "a", ignored=True, notes=("n",))] * 2 + [
        RawObject("cat", (0, 0, 100, 100), "a")
    ]
    images = [
        RawImage("a.png", "a", objects, (100, 100), "", {"query": "q"}, notes=("image",)),
        RawImage("b.png", "b", [objects[0]._replace(corners_xyxy=(0.1, 0.1, 0.5, 0.5), unit="fractions")], None, 0),
        RawImage("c.png", "c", [objects[0]._replace(corners_xyxy=(-0.5, 0, 100.5, 50))], None, None),
        RawImage("", "d", objects),
        RawImage("e.png", "e", fault="torn"),
        RawImage("f.png", "f", objects, (100, 100), 0),
    ]
    found = collect(Reading(images, Path("r")), "drop_box", {"c.png": (100, 50)}.get)
    assert [i.model_dump(exclude={"objects"}) for i in found.instances] == [
        {"image": "a.png", "width": 100, "height": 100, "image_id": "", "query": "q"},
        {"image": "b.png", "width": None, "height": None, "image_id": 0},
        {"image": "c.png", "width": 100, "height": 50, "image_id": None},
    ]
    assert [[o.bbox for o in i.objects] for i in found.instances] == [
        [(0.1, 0.1, 0.5, 0.5)] * 2 + [(0, 0, 1, 1)],
        [(0.1, 0.1, 0.5, 0.5)],
        [(0, 0, 1, 1)],
    ]
    assert [[o.iscrowd for o in i.objects] for i in found.instances] == [[True, True, False], [True], [True]]
    assert sorted(found.notes.values()) == [1, 1, 4, 4] and found.notes["n"] == found.notes[IGNORED] == 4
    assert [(p.where, p.is_box) for p in found.problems] == [("d", False), ("e", False), ("f", False)]
    assert "0" in found.problems[2].message and found.root == Path("r")
    assert [c.name for c in found.categories] == ["cat", "dog"]


def test_box_in_pixels_of_an_image_without_a_size_is_told_once_by_what_is_wrong_with_the_image():
    fractions = RawObject("cat", (0.1, 0.1, 0.5, 0.5), "a", unit="fractions")
    pixels, faulty = RawObject("cat", INSIDE, "b"), RawObject("cat", INSIDE, "c", fault="torn")
    asked, problem = [], Problem("a.png", "image", "gone")
    for objects, is_asked in (([fractions], False), ([faulty], False), ([pixels, fractions, pixels], True)):
        asked.clear()
        image = RawImage("a.png", "a", objects)
        found = collect(
            Reading([image], Path()), "drop_box", {}.get, image_fault=lambda name: asked.append(name) or problem
        )
        assert asked == ["a.png"] * is_asked
        assert (len(found.instances), len(found.problems)) == ((0, 1) if is_asked else (1, int(objects == [faulty])))
    found = collect(Reading([RawImage("a.png", "a", [pixels, pixels])], Path()), "drop_box", {}.get)
    assert ["size of its image is unknown" in p.message for p in found.problems] == [True, True]


SHAPES = {"keypoints": (0.1, 0.2, 2, 0.5, 0.5, 1, 0, 0, 0), "polygon": [0.1, 0.2, 0.5, 0.2, 0.3, 0.6]}


@pytest.mark.parametrize("unit", ["pixels", "fractions"])
@pytest.mark.parametrize("size", [(200, 100), None])
@pytest.mark.parametrize("kind", SHAPES)
def test_shapes_are_the_same_in_both_units_and_at_any_size(unit, size, kind):
    if unit == "pixels" and size is None:
        return
    side = (1, 1) if unit == "fractions" else size
    values = SHAPES[kind]
    if kind == "keypoints":
        scaled = [v if n % 3 == 2 else v * side[n % 3] for n, v in enumerate(values)]
        own = {"keypoints": scaled, "keypoint_names": ("nose", "tail", "ear")}
    else:
        own = {"outlines": ([v * side[n % 2] for n, v in enumerate(values)],)}
    box = tuple(v * s for v, s in zip((0.1, 0.2, 0.5, 0.6), side * 2, strict=True))
    stated = RawObject("cat", box, "a", unit, as_box=("box",), **own)
    images = [RawImage("a.png", "a", [stated, stated._replace(ignored=True)], size)]
    found = collect(Reading(images, Path()), "drop_image", {}.get, kind)
    target, crowd = found.instances[0].objects
    expected = [0.1, 0.2, 0.5, 0.5, 0, 0] if kind == "keypoints" else values
    assert sorted(target.geometry.coordinates) == pytest.approx(sorted(expected)) and crowd.geometry is None
    assert (
        target.geometry.names == (("nose", "tail", "ear") if kind == "keypoints" else ()) and "box" not in found.notes
    )
    assert collect(Reading(images, Path()), "drop_image", {}.get).notes["box"] == 2


@pytest.mark.parametrize("x", [0, 100, -0.01, 100.01])
def test_point_is_inside_its_image_up_to_the_border(x):
    for point in ((x, 50), (50, x)):
        stated = RawObject("cat", (), "a").at(*point)
        found = collect(Reading([RawImage("a.png", "a", [stated], (100, 100))], Path()), "drop_box", {}.get, "point")
        read = [o.geometry.coordinates for i in found.instances for o in i.objects]
        assert read == ([tuple(v / 100 for v in point)] if 0 <= x <= 100 else [])
