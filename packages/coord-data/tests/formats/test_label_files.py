"""Which label file belongs to which image: layouts of YOLO data sets, and those where nothing says it."""

import pytest

from coord_codec import InputError
from coord_data.formats.label_files import find_labels, labels_without_image


@pytest.fixture
def lay(tmp_path):
    """Make empty files, and tell the labels that their images get, as `image: label` relative to the folder."""

    def labels(files, top=".", images=None):
        for name in files.split():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        root = tmp_path / images if images else None
        found = find_labels(sorted((root or tmp_path / top).rglob("*.jpg")), tmp_path / top, root)
        relative = [(row.image.relative_to(tmp_path), row.label and row.label.relative_to(tmp_path)) for row in found]
        return {image.as_posix(): label and label.as_posix() for image, label in relative}, [r.fault for r in found]

    return labels


LABELS = "ds/labels/train/0.txt ds/labels/val/0.txt"
TWO = "ds/images/train/0.jpg ds/images/val/0.jpg"


@pytest.mark.parametrize(
    ("files", "top", "images", "expected"),
    [
        (f"{TWO} {LABELS}", "ds", "ds/images", ["labels/train/0", "labels/val/0"]),
        (f"{TWO} ds/labels/train/0.txt", "ds", "ds/images", ["labels/train/0", None]),
        (f"{TWO} {LABELS}", "ds/labels", "ds/images", ["labels/train/0", "labels/val/0"]),
        (f"{TWO} {LABELS}", "ds/images", None, ["labels/train/0", "labels/val/0"]),
        (f"{TWO} ds/images/train/0.txt ds/images/val/0.txt", "ds", None, ["images/train/0", "images/val/0"]),
        ("images/ds/0.jpg images/ds/0.txt", "images/ds", None, ["0"]),
        ("images/ds/0.jpg images/ds/0.txt labels/ds/0.txt", "images/ds", None, ["0"]),
        ("ds/0.jpg ds/labels/0.txt", "ds", None, ["labels/0"]),
        ("ds/labels/train/0.txt other/train/0.jpg", "ds", "other", ["labels/train/0"]),
        ("ds/new/0.txt old/images/0.jpg old/labels/0.txt", "ds/new", "old/images", ["0"]),
        ("ds/a/0.txt ds/b/1.txt ds/classes.txt other/0.jpg other/classes.jpg", "ds", "other", ["a/0", None]),
        ("ds/0.jpg ds/0.png ds/0.txt ds/0.jpg.txt", "ds", None, ["0.jpg"]),
        (
            "ds/images/b/images/0.jpg ds/images/b/labels/0.txt ds/labels/b/images/0.txt",
            "ds",
            None,
            ["images/b/labels/0"],
        ),
        ("ds/Images/0.jpg ds/Labels/0.txt", "ds", None, ["Labels/0"]),
    ],
)
def test_labels_are_found_by_their_path_and_a_single_name(lay, files, top, images, expected):
    found, _ = lay(files, top, images)
    folder = top if f"{top}/{expected[0]}.txt" in files.split() else "ds"
    assert list(found.values()) == [name and f"{folder}/{name}.txt" for name in expected]


@pytest.mark.parametrize("files", ["ds/a/0.txt ds/b/0.txt other/0.jpg", "ds/a/0.txt other/x/0.jpg other/y/0.jpg"])
def test_name_of_several_labels_or_images_says_nothing(lay, files):
    found, faults = lay(files, "ds", "other")
    assert set(found.values()) == {None} and all("are called 0, such as" in fault for fault in faults)


def test_images_without_any_label_are_told_where_it_was_looked_for(lay):
    with pytest.raises(InputError, match=r"none of 2 images has a label file; .*/labels/train/0.txt or .*ds/im"):
        lay(f"{TWO} ds/label/0.txt", "ds")


def test_labels_behind_a_link_belong_to_the_folder(lay, tmp_path):
    lay("ds/notes/a.txt ds/images/0.jpg disk/0.txt ds/images/0.txt", "ds")
    (tmp_path / "ds" / "labels").symlink_to(tmp_path / "disk")
    found, _ = lay("", "ds", "ds/images")
    assert list(found.values()) == ["ds/labels/0.txt"]


def test_labels_without_image_are_those_with_boxes_in_the_folders_of_the_labels(lay, tmp_path):
    files = "a.jpg.txt b.txt .c.txt classes.txt e.TXT words.txt empty.txt four.txt g.json"
    lay(
        "ds/images/a.jpg ds/images/h.PNG ds/labels/h.txt ds/other/i.txt "
        + " ".join(f"ds/labels/{f}" for f in files.split())
    )
    for path in (tmp_path / "ds").rglob("*.*"):
        if path.suffix not in (".jpg", ".PNG") and path.stem != "empty":
            path.write_text({"words": "not a box at all", "four": "0 1 1 1"}.get(path.stem, "\n0 .5 .5 .2 .2\n"))
    labelled = find_labels(sorted((tmp_path / "ds" / "images").glob("a.jpg")), tmp_path / "ds")
    assert [path.name for path in labels_without_image(labelled)] == ["b.txt", "e.TXT"]
