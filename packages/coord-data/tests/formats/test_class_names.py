"""Names of classes in `classes.txt` and `data.yaml`, and what is no name."""

import pytest

from coord_codec import InputError
from coord_data.formats.class_names import classes_of, find_classes, read_data_file
from coord_data.sources.source import Source


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("classes.txt", "cat\n\ndog\nbird\n\n", {0: "cat", 2: "dog", 3: "bird"}),
        ("data.yaml", "names:\n- cat\n-\n- dog", {0: "cat", 2: "dog"}),
        ("data.yaml", "names: {'0': cat, 2: dog}", {0: "cat", 2: "dog"}),
        (
            "data.yaml",
            "names: [yes, off, 12:30, 007, '1', null]",
            {0: "yes", 1: "off", 2: "12:30", 3: "007", 4: "1", 5: "null"},
        ),
    ],
)
def test_names_are_those_written_and_a_class_without_one_shifts_no_other(tmp_path, file, text, names):
    (tmp_path / file).write_text(text)
    assert find_classes(Source(tmp_path))[0].names == names


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("[cat, [dog]]", "class 1: expected a name, found "),
        ("{cat: 0}", "expected numbers of classes with their names, such as 0: cat, found 'cat'"),
        ("{yes: cat}", "expected numbers of classes with their names, such as 0: cat, found 'yes'"),
        ("cat", "expected a list of class names, found 'cat'"),
    ],
)
def test_names_that_are_none_are_refused(tmp_path, names, message):
    path = tmp_path / "data.yaml"
    path.write_text(f"names: {names}")
    with pytest.raises(InputError, match=f"data.yaml: names: {message}"):
        classes_of(read_data_file(Source(path)), path)


@pytest.mark.parametrize(
    ("files", "named_by"),
    [
        (["ds/data.yaml", "ds/labels/classes.txt", "data.yaml"], "ds/data.yaml"),
        (["ds/labels/classes.txt", "data.yaml"], "ds/labels/classes.txt"),
        (["ds/labels/train/classes.txt", "classes.txt"], "ds/labels/train/classes.txt"),
        (["ds/.cache/classes.txt", "data.yaml"], "data.yaml"),
        (["ds/a/b/classes.txt", "ds/z/classes.txt"], "ds/z/classes.txt"),
    ],
)
def test_classes_are_named_by_the_nearest_file(tmp_path, files, named_by):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f"names: [{file}]" if file.endswith("yaml") else file)
    (tmp_path / "ds").mkdir(exist_ok=True)
    classes, path = find_classes(Source(tmp_path / "ds"))
    assert classes.names == {0: named_by} and path == tmp_path / named_by


@pytest.mark.parametrize("file", ["ds/labels/classes.txt", "ds/labels/images/classes.txt"])
def test_classes_beside_the_labels_name_those_of_the_folder_of_images(tmp_path, file):
    for place in (file, "ds/images/a"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("cat")
    assert find_classes(Source(tmp_path / "ds" / "images"))[1] == tmp_path / file


def test_two_folders_of_labels_that_name_other_classes_are_refused(tmp_path):
    for split in ("train", "val"):
        (tmp_path / "labels" / split).mkdir(parents=True)
        (tmp_path / "labels" / split / "classes.txt").write_text(split)
    with pytest.raises(InputError, match=r"train/classes.txt and .*val/classes.txt name different classes"):
        find_classes(Source(tmp_path))


@pytest.mark.parametrize(("lines", "val"), [("valid = a.txt\n", "a.txt"), ("valid=a.txt\nval=b.txt\n", "b.txt")])
def test_splits_of_darknet_are_named_as_written(tmp_path, lines, val):
    (tmp_path / "obj.names").write_text("cat\n\ndog\n")
    (tmp_path / "obj.data").write_text(f"classes = 2\ntrain =\nbackup\n{lines}names = data/obj.names\n")
    values = read_data_file(Source(tmp_path / "obj.data"))
    assert values["val"] == val and values["names"] == {0: "cat", 2: "dog"} and not {"train", "backup"} & values.keys()
