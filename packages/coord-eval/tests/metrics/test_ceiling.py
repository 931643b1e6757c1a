"""The ceiling of names: a label counts as it is read from a text, and plain ones are read as they are written."""

from hypothesis import given
from hypothesis import strategies as st

from coord_codec import MARKERS, CoordGrid, Instance, Object, encode_target
from coord_eval import parse_answer
from coord_eval.metrics.ceiling import _WORDS

BOX = (0.1, 0.2, 0.5, 0.6)


@given(name=st.from_regex(_WORDS, fullmatch=True), markers=st.sampled_from(sorted(MARKERS)))
def test_plain_labels_that_no_parser_is_asked_about_are_read_as_written(name, markers):
    record = Instance(image="a.jpg", width=100, height=100, objects=[Object(desc=name, bbox=BOX)])
    answer = parse_answer(encode_target(record, markers=markers, grid=CoordGrid()), markers, grid=CoordGrid())
    assert [item.desc for item in answer] == [name]
