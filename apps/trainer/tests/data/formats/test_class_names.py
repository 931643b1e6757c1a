"""Names of classes in `classes.txt` and `data.yaml`, and what is no name."""

import pytest

from coord_codec import InputError
from coord_trainer.data.formats.class_names import classes_of, find_classes, read_data_yaml


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("classes.txt", "cat\n\ndog\nbird\n\n", {0: "cat", 2: "dog", 3: "bird"}),
        ("data.yaml", "names:\n- cat\n-\n- dog", {0: "cat", 2: "dog"}),
        ("data.yaml", "names: {'0': cat, 2: dog}", {0: "cat", 2: "dog"}),
    ],
)
def test_class_without_name_shifts_no_other(tmp_path, file, text, names):
    (tmp_path / file).write_text(text)
    assert find_classes(tmp_path).names == names


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("[yes, off]", "class 0: expected a name, found True, in YAML no text; put it in quotes"),
        ("[cat, 12:30]", "class 1: expected a name, found 750, in YAML no text; put it in quotes"),
        ("{cat: 0}", "expected numbers of classes with their names, such as 0: cat, found 'cat'"),
        ("{yes: cat}", "expected numbers of classes with their names, such as 0: cat, found True"),
        ("cat", "expected a list of class names, found 'cat'"),
    ],
)
def test_names_that_are_no_text_are_refused(tmp_path, names, message):
    path = tmp_path / "data.yaml"
    path.write_text(f"names: {names}")
    with pytest.raises(InputError, match=f"data.yaml: names: {message}"):
        classes_of(read_data_yaml(path), path)
