"""Arguments of wrong types are `InputError`s that name them."""

import pytest

import coord_codec
from coord_codec import InputError
from coord_codec.arguments import expect
from coord_codec.labels import normalize_label

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


@pytest.mark.parametrize(
    ("value", "kinds", "fits"),
    [
        *((value, (int,), fits) for value, fits in ((1, True), (True, False), (1.0, False), (None, False))),
        *((value, (float,), fits) for value, fits in ((1, True), (1.5, True), (False, False), ("1", False))),
        *((value, (bool,), fits) for value, fits in ((True, True), (1, False))),
        *((value, (int, bool), True) for value in (True, 3)),
        *((value, (int, type(None)), fits) for value, fits in ((None, True), (True, False), (0, True))),
        *((value, (str, list), fits) for value, fits in (("", True), ([], True), ((), False), (True, False))),
    ],
)
def test_truth_value_is_a_number_nowhere_and_a_whole_one_is_a_fraction(value, kinds, fits):
    if fits:
        expect("x", value, *kinds)
    else:
        with pytest.raises(InputError, match=r"^x: expected"):
            expect("x", value, *kinds)


@pytest.mark.parametrize(
    ("label", "normal"),
    [
        *(
            (label, "traffic light")
            for label in ("Traffic_Light.", "traffic-light", " TRAFFIC  light!", "\uff54raffic\tlight")
        ),
        *(
            ("Straße", "strasse"),
            ("a_-_b", "a b"),
            ("'cat'", "cat"),
            ("?", "?"),
            ("", ""),
            ("t-shirt, red", "t shirt, red"),
        ),
    ],
)
def test_labels_are_alike_but_for_case_and_separators(label, normal):
    assert normalize_label(label) == normal
