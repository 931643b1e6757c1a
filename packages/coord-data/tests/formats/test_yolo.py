"""YOLO folders and `data.yaml` as tools and people write them."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coord_codec import InputError
from coord_data.formats.poses import are_poses
from coord_data.formats.yolo import held_out
from coord_data.reading.read import read_source

BOX = "0 .5 .5 .2 .2\n"


@pytest.fixture
def lay(tmp_path):
    """Write files below `y`: images where the name says so, else the text."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / "y" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".jpg" and not text:
                Image.new("RGB", (20, 10)).save(path)
            else:
                path.write_text(text)
        return tmp_path / "y"

    return write


def boxes(found):
    """Name of each image with its number of boxes."""
    return {i.image: len(i.objects) for i in found.annotations.instances}


PAIR = {"images/a.jpg": "", "labels/a.txt": BOX}
SIDE_BY_SIDE = {"images/a.jpg": "", "images/a.txt": BOX, "images/b.jpg": "", "images/b.txt": ""}


@pytest.mark.parametrize("source", ["", "data.yaml"])
def test_labels_beside_images_in_a_folder_called_images(lay, source):
    place = lay(SIDE_BY_SIDE | {"data.yaml": "train: images\nnames: [cat]"})
    assert boxes(read_source(place / source)) == {"images/a.jpg": 1, "images/b.jpg": 0}


def test_cvat_export_below_a_folder_called_images(lay):
    files = {"obj.names": "cat\n", "train.txt": "data/a.jpg\n", "obj_train_data/a.jpg": "", "obj_train_data/a.txt": BOX}
    place = lay({f"images/cvat/{name}": text for name, text in files.items()})
    assert boxes(read_source(place / "images" / "cvat")) == {"obj_train_data/a.jpg": 1}


@pytest.mark.parametrize("images", [None, "images"])
def test_images_of_the_same_name_have_their_own_labels(lay, images):
    names = {f"images/{split}/0.jpg": "" for split in ("train", "val")}
    labels = {"labels/train/0.txt": BOX, "labels/val/0.txt": BOX * 2, "classes.txt": "cat\n"}
    place = lay(names | labels)
    found = read_source(place, images and place / images)
    assert list(boxes(found).values()) == [1, 2]


def test_data_yaml_without_any_label_is_refused(lay):
    place = lay({"images/a.jpg": "", "label/a.txt": BOX, "data.yaml": "train: images\nnames: [cat]"})
    with pytest.raises(InputError, match=r"none of 1 image has a label file; .*labels/a.txt or .*images/a.txt"):
        read_source(place / "data.yaml")


@pytest.mark.slow
def test_root_folder_gives_the_training_images_that_data_yaml_names(lay):
    splits = {f"{split}/{name}": text for split in ("train", "valid") for name, text in PAIR.items()}
    place = lay(splits | {"data.yaml": "train: ../train/images\nval: ../valid/images\nnames: [cat]"})
    found = read_source(place)
    assert (
        boxes(found) == {"train/images/a.jpg": 1}
        and "the training images are read; name the folder of val" in found.notes[0]
    )
    assert list(boxes(read_source(place, place / "valid"))) == ["images/a.jpg"]
    (place / "data.yaml").write_text("train: elsewhere\nnames: [cat]")
    assert "/elsewhere; all images of the folder are read" in read_source(place).notes[0]
    (place / "elsewhere").mkdir()
    assert "found none; all images of the folder are read" in read_source(place).notes[0]
    assert len(boxes(read_source(place, place / "valid"))) == 1
    (place / "data.yaml").write_text("names: [cat]")
    found = read_source(place)
    assert len(boxes(found)) == 2 and "train 1, valid 1 images are read together" in found.notes[0]


POINTS = " .4 .4 .6 .4 .6 .6 .45 .5"


def test_poses_are_read_as_their_boxes(lay):
    text = BOX.strip() + POINTS + "\n" + BOX + f"1{POINTS}\n"
    place = lay({"images/a.jpg": "", "labels/a.txt": text, "data.yaml": "names: [cat, dog]\nkpt_shape: [4, 2]"})
    found = read_source(place / "data.yaml", on_bad_box="drop_box").annotations
    assert [o.bbox for i in found.instances for o in i.objects] == [pytest.approx((0.4, 0.4, 0.6, 0.6))]
    assert {count: note.split(":")[0] for note, count in found.notes.items()} == {4: "keypoints left out"}
    messages = [problem.message for problem in found.problems]
    assert len(messages) == 2 and "kpt_shape is [4, 2]: expected class, centre, size and 4 keypoints (13" in messages[0]
    for shape in ("17", "[0, 2]", "[4, 4]", "[4]", "[yes, 2]", "[4, 2, 1]"):
        (place / "data.yaml").write_text(f"names: [cat]\nkpt_shape: {shape}")
        with pytest.raises(InputError, match=r"data.yaml: kpt_shape: expected the number of keypoints .*, found \[?\w"):
            read_source(place)


@pytest.mark.parametrize(
    ("file", "text", "note"),
    [
        ("data.yaml", "path: .\ntrain: train.txt", None),
        (
            "data.yaml",
            "train: [train.txt, images, images/../images]",
            "2 images are named more than once, and read once",
        ),
        (
            "data.yaml",
            "path: C:\\data\ntrain: images\\train",
            r"path: .*C:\\data does not exist; its images are searched for",
        ),
        ("cfg/data.yaml", "path: ..\\\ntrain: images\\train", None),
        ("cfg/data.yaml", "path: ../\ntrain: lists/cvat.txt", None),
    ],
)
def test_data_yaml_names_lists_of_images_in_any_spelling(lay, file, text, note):
    lists = {"train.txt": "./images/train/a.jpg\n\n", "lists/cvat.txt": "data/images\\train\\a.jpg\n"}
    pair = {"images/train/a.jpg": "", "labels/train/a.txt": BOX}
    found = read_source(lay(pair | lists | {file: f"{text}\nnames: [cat]"}) / file)
    assert list(boxes(found).values()) == [1]
    assert re.search(note, found.notes[0]) if note else not found.notes


def test_listed_images_that_are_missing_are_problems_unless_all_are(lay):
    place = lay(PAIR | {"train.txt": "images/a.jpg\nimages/b.jpg", "data.yaml": "train: train.txt\nnames: [cat]"})
    assert len(boxes(read_source(place / "data.yaml"))) == 2  # that of b is refused where images are opened
    (place / "train.txt").write_text("gone/b.jpg")
    with pytest.raises(InputError, match=r"train.txt: none of the 1 listed images exists; .*expected at .*/gone/b.jpg"):
        read_source(place / "data.yaml")


def test_data_yaml_that_leads_nowhere_names_all_places(lay):
    place = lay(PAIR | {"cfg/data.yaml": "path: coco8\ntrain: images/train\nnames: [cat]"})
    with pytest.raises(InputError, match=r"at \S*/cfg/coco8/images/train or \S*/cfg/images/train$"):
        read_source(place / "cfg" / "data.yaml")


@pytest.mark.parametrize("labels", ["labels", "images"])
def test_folder_whose_first_labels_are_empty_is_recognised(lay, labels):
    files = {f"{folder}/{n:02}.{kind}": "" for n in range(22) for folder, kind in (("images", "jpg"), (labels, "txt"))}
    place = lay(files | {f"{labels}/20.txt": "\n", f"{labels}/21.txt": BOX, "classes.txt": "cat"})
    found = read_source(place)
    assert found.format == "yolo" and sum(boxes(found).values()) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "image,label\n"), ("a.xml", "<annotation/>"), ("a.json", '{"images": []}'), ("a.yaml", "train: images")],
)
def test_file_that_is_no_data_yaml_is_refused(lay, name, text):
    with pytest.raises(InputError, match=rf"{name}: expected the data.yaml of YOLO labels, with names, found none"):
        read_source(lay({name: text}) / name, format="yolo")


@pytest.mark.parametrize("source", ["labels", ".", "../labels/", "../link"])
def test_folder_of_labels_in_subfolders_is_recognised(lay, source, monkeypatch):
    labels = {"labels/train/a.txt": BOX, "labels/val/b.txt": "\n", "classes.txt": "cat\n"}
    place = lay({"photos/train/a.jpg": "", "photos/val/b.jpg": ""} | labels)
    (place / "link").symlink_to(place / "labels")
    monkeypatch.chdir(place if source == "labels" else place / "labels")
    assert boxes(read_source(Path(source), place / "photos")) == {"train/a.jpg": 1, "val/b.jpg": 0}


HELD = {f"images/{name}.jpg": "" for name in ("train/a", "val/b", "val/c", "test/c")}


@pytest.mark.parametrize(
    ("stated", "names", "told"),
    [
        ("val: images/val", ["val/b", "val/c"], ["val holds out 2 images"]),
        ("val: [images/val, images/test]", ["test/c", "val/b", "val/c"], ["val holds out 3 images"]),
        ("val: val.txt", ["val/b"], ["val holds out 1 image;", "val: 1 of 2 images do not exist"]),
        ("test: images/test", ["test/c"], ["test holds out 1 image;"]),
        ("val: images/val\ntest: images/test", ["test/c", "val/b", "val/c"], ["val holds out 2", "test holds out 1"]),
        ("val: images/train\ntest: images/test", ["test/c"], ["val names the training images", "test holds out 1"]),
        ("val: images/gone", [], ["images/gone; it is not compared"]),
        ("val: images/empty", [], ["val: expected images, found none"]),
        ("val: 7", [], ["found nothing at"]),
    ],
)
@pytest.mark.parametrize("file", ["data.yaml", "cats.yml"])
def test_images_that_a_data_yaml_holds_out_are_named(lay, stated, names, told, file):
    text = f"train: images/train\n{stated}\nnames: [cat]"
    place = lay(HELD | {file: text, "val.txt": "images/val/b.jpg\nimages/val/gone.jpg\n", "images/empty/a.txt": BOX})
    found = held_out(place / file)
    assert sorted(found.names) == [f"images/{name}.jpg" for name in names] and found.root == place
    assert len(found.notes) == len(told) and all(part in note for part, note in zip(told, found.notes, strict=True))


def test_folder_without_a_data_yaml_that_holds_out_holds_out_nothing(lay):
    place = lay(PAIR | {"classes.txt": "cat\n"})
    assert held_out(place) is None
    (place / "data.yaml").write_text("train: images\nnames: [cat]")
    assert held_out(place) is None and held_out(place / "data.yaml") is None and held_out(place / "classes.txt") is None


@pytest.mark.parametrize(
    "line", ["nan .5 .5 .2 .2", "inf .5 .5 .2 .2", "0 nan .5 .2 .2", "0 .5 .5 inf .2", "1.5 .5 .5 .2 .2"]
)
def test_line_with_numbers_that_are_none_is_refused_alone(lay, line):
    found = read_source(lay(PAIR | {"labels/a.txt": f"{line}\n{BOX}", "classes.txt": "cat\n"}), on_bad_box="drop_box")
    assert boxes(found) == {"images/a.jpg": 1}
    (problem,) = found.annotations.problems
    assert problem.where.endswith("a.txt:1") and any(w in problem.message for w in ("no name", "finite", "fractions"))


def test_classes_named_outside_of_the_folder_are_said(lay):
    place = lay(PAIR | {"classes.txt": "cat"})
    assert read_source(place).notes == ()
    assert read_source(place / "images").notes == (
        f"{place / 'images'}: class names are read from {place / 'classes.txt'}",
    )


def test_label_files_without_an_image_are_counted(lay):
    names = ("gone.txt", "lost.txt", "photo.TXT")
    lost = {f"labels/{name}": BOX for name in names} | {"images/photo.heic": "", "labels/readme.txt": "made by hand"}
    files = PAIR | {"images/b.jfif": "", "labels/b.txt": "", "labels/none.txt": ""} | lost
    place = lay(files | {"data.yaml": "train: images/a.jpg\nnames: [cat]"})
    (place / "train.txt").write_text("images/a.jpg\n")
    (place / "data.yaml").write_text("train: train.txt\nnames: [cat]")
    lone = {str(place / "labels" / name) for name in names}
    for text in ("train: train.txt\nnames: [cat]", "names: [cat]"):
        (place / "data.yaml").write_text(text)
        assert {name for name, has in read_source(place).partners.files.items() if not has} == lone


@pytest.mark.parametrize(("labels", "counts"), [(("a.jpg", "a.png"), [1, 2]), (("a",), [1, 1])])
def test_images_of_one_name_in_two_suffixes(lay, labels, counts):
    """As `predict --export yolo` writes their labels, or with one label file, which is said."""
    files = {f"labels/{name}.txt": BOX * (n + 1) for n, name in enumerate(labels)}
    place = lay(files | {"images/a.jpg": "", "classes.txt": "cat"})
    Image.new("RGB", (20, 10)).save(place / "images" / "a.png")
    found = read_source(place)
    assert list(boxes(found).values()) == counts
    said = f"{place}: several images have the label file {place / 'labels' / 'a.txt'} (1 such files in all)"
    assert found.notes == (() if len(labels) > 1 else (said,))


def poses(draw, points, numbers, least=0.05, most=0.4):
    """Return rows of poses whose keypoints lie in their boxes, as most people are photographed."""
    rows = []
    for _ in range(20):
        width, height = draw.uniform(least, most, 2)
        cx, cy = draw.uniform(width / 2, 1 - width / 2), draw.uniform(height / 2, 1 - height / 2)
        row = [cx, cy, width, height]
        for _ in range(points):
            row += [cx + width * draw.uniform(-0.5, 0.5), cy + height * draw.uniform(-0.5, 0.5)]
            row += [2] * (numbers == 3)
        rows.append("0 " + " ".join(f"{v:.6f}" for v in row))
    return "\n".join(rows)


@pytest.mark.drawn(9)
@pytest.mark.parametrize(
    ("points", "numbers"), [(17, 3), (4, 3), (17, 2), (5, 2), (4, 2), (3, 2), (2, 3), (2, 2), (1, 2)]
)
@pytest.mark.parametrize("size", [(0.05, 0.4), (0.3, 0.6), (0.5, 0.95), (0.8, 0.98)])
def test_poses_without_kpt_shape_are_refused_and_not_read_as_outlines(lay, points, numbers, size):
    text = poses(np.random.default_rng(points), points, numbers, *size)
    place = lay(PAIR | {"labels/a.txt": text, "data.yaml": "train: images\nnames: [cat]"})
    if (4 + points * numbers) % 2:  # never the count of an outline
        problem = read_source(place, on_bad_box="drop_box").annotations.problems[0]
        assert f"{points} keypoints, which need kpt_shape: [{points}, 3] in data.yaml" in problem.message
        return
    with pytest.raises(InputError, match=r"fit class, centre, size and keypoints, and no outlines; write kpt_shape: "):
        read_source(place)
    (place / "data.yaml").write_text(f"train: images\nnames: [cat]\nkpt_shape: [{points}, {numbers}]")
    (instance,) = read_source(place, geometry="keypoints").annotations.instances
    assert [len(o.geometry.names) for o in instance.objects] == [points] * 20


def test_ten_rows_tell_poses_from_triangles(lay):
    rows = poses(np.random.default_rng(1), 1, 2).splitlines()[:10]
    files = PAIR | {"data.yaml": "train: images\nnames: [cat]"}
    assert boxes(read_source(lay(files | {"labels/a.txt": "\n".join(rows[:9])}))) == {"images/a.jpg": 9}
    with pytest.raises(InputError, match="and no outlines"):
        read_source(lay(files | {"labels/a.txt": "\n".join(rows)}))


@pytest.mark.parametrize(
    ("row", "are"),
    [
        ([0.5, 0.5, 0.4, 0.3, 0.45, 0.4, 0.6, 0.6, 0, 0, 0, 0, 0.55, 0.45], True),  # two keypoints without a label
        ([0.5, 0.5, 0.4, 0.3, 0.45, 0.4, 0.6, 0.6, 0.5, 0.5, 0.45, 0.4], False),  # comes back to its vertices
        ([0.3, 0.3, 0.6, 0.3, 0.6, 0.4, 0.45, 0.4, 0.3, 0.4], False),  # a vertex in the middle of a side
        ([0.3, 0.3, 0.3, 0.4, 0.45, 0.4, 0.6, 0.4, 0.6, 0.3], False),  # the other way round
    ],
)
def test_rows_are_poses_unless_outlines_explain_them(row, are):
    assert are_poses([row] * 12) is are


def outlines(draw, corners):
    """Return rows of regular outlines, turned by chance and drawn out, from a random corner on."""
    rows = []
    for _ in range(20):
        start, stretch = draw.uniform(0, 2 * np.pi), draw.uniform(0.2, 1)
        angles = start + np.linspace(0, 2 * np.pi, corners, endpoint=False) * draw.choice([-1, 1])
        size = draw.uniform(0.02, 0.25)
        centre = draw.uniform(size, 1 - size, 2)
        xy = centre + size * np.stack([np.cos(angles), stretch * np.sin(angles)], axis=1)
        rows.append("0 " + " ".join(f"{v:.6f}" for v in xy.ravel()))
    return "\n".join(rows)


@pytest.mark.parametrize("corners", [3, 4, 5, 6, 8, 20])
@pytest.mark.parametrize("seed", range(4))
def test_outlines_of_one_length_are_no_poses(lay, corners, seed):
    text = outlines(np.random.default_rng(seed), corners)
    found = read_source(lay(PAIR | {"labels/a.txt": text, "data.yaml": "train: images\nnames: [cat]"}))
    assert boxes(found) == {"images/a.jpg": 20} and not found.annotations.problems


def test_keypoints_are_named_for_mirroring_by_flip_idx_or_kpt_names(lay):
    row = "0 .5 .5 .4 .4 .4 .4 2 .6 .6 1 0 0 0"
    place = lay(PAIR | {"labels/a.txt": row, "data.yaml": "train: images\nnames: [cat]\nkpt_shape: [3, 3]"})
    for more, names in {
        "": ("keypoint 1", "keypoint 2", "keypoint 3"),
        "flip_idx: [1, 0, 2]": ("left keypoint 1", "right keypoint 1", "keypoint 3"),
        "kpt_names: {0: [left ear, right ear, nose]}": ("left ear", "right ear", "nose"),
    }.items():
        (place / "data.yaml").write_text(f"train: images\nnames: [cat]\nkpt_shape: [3, 3]\n{more}")
        (instance,) = read_source(place, geometry="keypoints").annotations.instances
        shape = instance.objects[0].geometry
        assert shape.names == names and shape.visibility == (2, 1, 0)
        assert shape.coordinates == pytest.approx((0.4, 0.4, 0.6, 0.6, 0, 0))


def test_rows_of_seven_numbers_are_boxes_with_tracks_or_triangles_by_all_rows(lay):
    tracks = "0 .5 .5 .2 .2 .91 1\n0 .3 .3 .2 .2 .8 2\n"
    yaml = {"data.yaml": "names: [cat]"}
    found = read_source(lay(PAIR | yaml | {"labels/a.txt": tracks})).annotations
    np.testing.assert_allclose(
        [o.bbox for o in found.instances[0].objects], [[0.4] * 2 + [0.6] * 2, [0.2] * 2 + [0.4] * 2]
    )
    assert 2 in found.notes.values()
    triangle = "0 .2 .3 .2 .4 .8 .9\n"
    found = read_source(lay(PAIR | yaml | {"labels/a.txt": tracks.splitlines()[0] + "\n" + triangle})).annotations
    assert found.instances[0].objects[-1].bbox == (0.2, 0.3, 0.8, 0.9)
    with pytest.raises(InputError, match="track id, keep the first five numbers of each row; for triangles"):
        read_source(lay(PAIR | yaml | {"labels/a.txt": tracks.splitlines()[0]}))
