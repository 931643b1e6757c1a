"""Arguments of wrong types are `InputError`s that name them."""

import pytest

import coord_codec
from coord_codec import InputError

FIRST = {
    **{"annotate_coord_tokens": "record", "coordinates_of": "obj", "encode_target": "instance"},
    **{"read_annotations": "source", "read_instances": "path", "select_objects": "instance"},
}


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("value", [None, 5, 1.5, object(), True])
def test_first_argument_of_a_wrong_type_is_an_input_error(name, value):
    with pytest.raises(InputError, match=rf"^{FIRST[name]}: expected .*, found {type(value).__name__}"):
        getattr(coord_codec, name)(value)


def test_write_instances_names_what_is_no_instance(tmp_path):
    with pytest.raises(InputError, match=r"^instances\[0\]: expected Instance, found str"):
        coord_codec.write_instances(tmp_path / "a.jsonl", ["x"])
    assert not (tmp_path / "a.jsonl").exists()
