"""The ceiling of names: a label counts as it is read from a text, without asking the parser for families of ours."""

from hypothesis import example, given
from hypothesis import strategies as st

from coord_codec import MARKERS, BoxTable, CoordGrid, Instance, Object, encode_target
from coord_eval import GroundTruth, parse_answer
from coord_eval.intake.joining import LabelMatcher
from coord_eval.metrics.ceiling import _categories_read, no_ceiling
from coord_eval.settings import CeilingSettings


def truth_of(names):
    table = BoxTable.of([], [], [], image_ids=(), labels=names)
    return GroundTruth.of(table, range(len(names)), sizes_known=True)


def as_parsed(name, markers):
    record = Instance(image="a.jpg", objects=[Object(desc=name, bbox=(0.1, 0.2, 0.5, 0.6))])
    found = parse_answer(encode_target(record, markers=markers, grid=CoordGrid()), markers, grid=CoordGrid())
    return found.objects[0].desc if len(found) == 1 else None


LABELS = st.text(min_size=1).filter(lambda text: not no_ceiling(truth_of([text])))


@given(st.lists(LABELS, min_size=1, unique=True), st.sampled_from(sorted(MARKERS)))
@example([" a", "a"], "obj")
@example(["[THINK]", "a<think>b", "cat"], "obj")
def test_labels_count_as_the_parser_reads_them(names, markers):
    labels = [as_parsed(name, markers) for name in names]
    read = [-1 if label is None else LabelMatcher(names).match(label)[0] for label in labels]
    read = [-1 if category is None else category for category in read]
    assert _categories_read(truth_of(names), CeilingSettings(markers), CoordGrid()).tolist() == read
