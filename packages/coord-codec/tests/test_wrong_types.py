"""Arguments of wrong types are `InputError`s that name them."""

import pytest

import coord_codec
from coord_codec import InputError

FIRST = {
    **{"annotate_coord_tokens": "record", "coordinates_of": "obj", "encode_target": "instance"},
    **{"ints_to_tokens": "bins", "tokens_to_ints": "tokens", "order_objects": "objects"},
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


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda wrong: coord_codec.MarkerFamily(wrong, ("<a>", "<b>")), "name"),
        (lambda wrong: coord_codec.MarkerFamily("mine", wrong), "tokens"),
        (lambda wrong: coord_codec.MarkerFamily("mine", ("<a>", wrong)), "tokens"),
        (lambda wrong: coord_codec.find_layout([1], wrong), "vocab"),
        (lambda wrong: coord_codec.find_layout(wrong, coord_codec.CoordVocab(first_id=9)), "ids"),
        (lambda wrong: coord_codec.ints_to_tokens([1], wrong), "grid"),
        (lambda wrong: coord_codec.order_objects([wrong]), "objects"),
    ],
)
@pytest.mark.parametrize("wrong", [5, 1.5, True])
def test_further_arguments_of_a_wrong_type_are_input_errors(call, argument, wrong):
    with pytest.raises(InputError, match=f"^{argument}: expected"):
        call(wrong)
