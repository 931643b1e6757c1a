"""Details of the parser that only a deliberate fault in it showed to be untested."""

import pytest

from coord_codec import MARKERS, int_to_token
from coord_eval import parse_answer

START, END = MARKERS["obj"].tokens
REF, REF_END, BOX, BOX_END = MARKERS["qwen"].tokens
FOUR = "".join(int_to_token(k) for k in (12, 34, 56, 78))


@pytest.mark.parametrize(
    "record",
    [
        '{"color": "red", "bbox_2d": [12, 34, 56, 78], "label": "cat"}',
        '{"bbox_2d": [12, 34, 56, 78], "color": "red", "label": "cat"}',
        '{"bbox_2d": [12, 34, 56, 78], "label": "cat", "color": "red"}',
        '{"label": "cat", "name": "dog", "bbox_2d": [12, 34, 56, 78]}',
    ],
)
def test_only_the_first_field_for_labels_is_the_label(record):
    assert [found.desc for found in parse_answer(f"[{record}]").objects] == ["cat"]


@pytest.mark.parametrize(
    ("whole", "bare"),
    [
        (f"{START}cat{FOUR}{END}", f"{START}cat(12,34),(56,78){END}"),
        (f"{REF}cat{REF_END}{BOX}{FOUR}{BOX_END}", f"{REF}cat{REF_END}{BOX}(12,34),(56,78){BOX_END}"),
    ],
    ids=["obj", "qwen"],
)
def test_every_object_knows_which_start_it_began_with(whole, bare):
    """The index into the log-probabilities of descriptions: one off, and every label has another's."""
    broken = whole.replace(int_to_token(34), "")  # three coordinates: dropped, but its start counts
    for text in (whole * 3, bare * 3, whole + bare + whole):
        assert [found.start_index for found in parse_answer(text).objects] == [0, 1, 2]
    for text in (whole + broken + whole, bare + broken + bare, broken + whole + broken + bare):
        expected = [0, 2] if not text.startswith(broken) else [1, 3]
        assert [found.start_index for found in parse_answer(text).objects] == expected


def test_numbers_before_the_second_pair_of_markers_are_words_of_the_description():
    """Of two markers numbers follow the description; of four they stand between markers of their own."""
    assert parse_answer(f"{START}cat(12,34),(56,78){START}dog{FOUR}{END}").objects[0].bins == (12, 34, 56, 78)
    cut = parse_answer(f"{REF}cat(12,34),(56,78){REF}dog{REF_END}{BOX}{FOUR}{BOX_END}")
    assert [found.desc for found in cut.objects] == ["dog"]
    assert [drop.reason for drop in cut.dropped] == ["nested_start"]


@pytest.mark.parametrize(("between", "desc"), [("", "cat"), (" , ", "cat"), (", and a dog ", "")])
def test_a_further_box_belongs_to_the_description_unless_words_stand_between(between, desc):
    answer = parse_answer(f"{REF}cat{REF_END}{BOX}{FOUR}{BOX_END}{between}{BOX}{FOUR}{BOX_END}")
    assert [found.desc for found in answer.objects] == ["cat", desc]


@pytest.mark.parametrize("text", [f"{REF}cat{REF_END}{BOX_END}", f"{REF}cat{BOX_END}", f"{START}cat{END}"])
def test_an_object_that_ends_before_any_coordinate_lacks_them(text):
    (drop,) = parse_answer(text).dropped
    assert (drop.reason, drop.span) == ("no_coordinates", (0, len(text)))
