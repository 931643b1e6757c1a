"""find_layout by hand: each rule of the grammar, and each reason for leaving something out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coord_codec import CoordVocab, Omission, Reason, find_layout

np = pytest.importorskip("numpy", reason="layouts of NumPy arrays")

VOCAB = CoordVocab(100)
S, E = 1, 2  # the pair
RS, RE, BS, BE = 3, 4, 5, 6  # the four
T, U = 50, 51  # text
A, B, C, D = 110, 120, 130, 140  # bins 10, 20, 30, 40
PAIR, FOUR = (S, E), (RS, RE, BS, BE)


def reasons(layout):
    return [(o.start, o.position, o.reason) for o in layout.reasons]


def test_one_object_between_two_markers():
    layout = find_layout([T, S, T, U, A, B, C, D, E, T], VOCAB, PAIR)
    assert layout.coord_positions == (4, 5, 6, 7)
    assert layout.desc_positions == (2, 3)
    assert layout.structure_positions == (0, 1, 8, 9)
    (obj,) = layout.objects
    assert obj.coord_positions == (4, 5, 6, 7) and obj.logit_positions == (3, 4, 5, 6)
    assert obj.desc_positions == (2, 3) and obj.bins == (10, 20, 30, 40)
    assert layout.reasons == ()
    assert find_layout([S, T, A, B, C, D, B, A, E], VOCAB, PAIR).objects[0].bins == (10, 20, 30, 40, 20, 10)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([S, T, S, U, A, B, C, D, E], [(0, 2, Reason.NESTED_START)]),
        ([S, T, A, B, S, U, A, B, C, D, E], [(0, 4, Reason.NESTED_START)]),
        ([S, A, B, C, D, E, S, T, A, B, C, D, E], [(0, 1, Reason.NO_DESCRIPTION)]),
        ([S, E, S, T, A, B, C, D, E], [(0, 1, Reason.NO_DESCRIPTION)]),
        ([S, T, E, S, T, A, B, C, D, E], [(0, 2, Reason.ARITY)]),
        ([S, T, A, B, C, E, S, T, A, B, C, D, E], [(0, 5, Reason.ARITY)]),
        ([S, T, A, B, C, D, A, E, S, T, A, B, C, D, E], [(0, 7, Reason.ARITY)]),
        ([S, T, A, B, E, S, T, A, B, C, D, E], [(0, 4, Reason.ARITY)]),
        ([S, T, A, B, U, C, D, E, S, T, A, B, C, D, E], [(0, 4, Reason.UNEXPECTED_TOKEN)]),
        ([S, T, A, -100, B, C, D, E, S, T, A, B, C, D, E], [(0, 3, Reason.MASKED)]),
        ([S, -100, T, A, B, C, D, E, S, T, A, B, C, D, E], [(0, 1, Reason.MASKED)]),
        ([S, T, A, B, C, D, E, S, T, A, B], [(7, 11, Reason.UNFINISHED)]),
        ([S, T, A, B, C, D, E, S], [(7, 8, Reason.UNFINISHED)]),
        ([E, S, T, A, B, C, D, E], [(0, 0, Reason.STRAY_MARKER)]),
        ([S, T, A, B, C, D, E, E], [(7, 7, Reason.STRAY_MARKER)]),
        ([A, B, T, S, T, A, B, C, D, E], [(0, 0, Reason.STRAY_COORDINATE)]),
    ],
)
def test_what_two_markers_leave_out(ids, expected):
    layout = find_layout(ids, VOCAB, PAIR)
    assert len(layout.objects) == 1  # the good one beside the bad
    assert layout.objects[0].bins == (10, 20, 30, 40)
    assert reasons(layout) == expected


GOOD = [RS, T, RE, BS, A, B, C, D, BE]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([RS, T, *GOOD], [(0, 2, Reason.NESTED_START)]),
        ([RS, RE, BS, A, B, C, D, BE, *GOOD], [(0, 1, Reason.NO_DESCRIPTION)]),
        ([RS, T, RE, U, BS, A, B, C, D, BE, *GOOD], [(0, 3, Reason.UNEXPECTED_TOKEN)]),
        ([RS, T, RE, A, B, C, D, BE, *GOOD], [(0, 3, Reason.UNEXPECTED_TOKEN)]),
        ([RS, T, A, B, C, D, BE, *GOOD], [(0, 2, Reason.UNEXPECTED_TOKEN)]),
        ([RS, T, BS, A, B, C, D, BE, *GOOD], [(0, 2, Reason.UNEXPECTED_TOKEN)]),
        ([RS, T, BE, *GOOD], [(0, 2, Reason.UNEXPECTED_TOKEN)]),
        ([RS, T, RE, BE, *GOOD], [(0, 3, Reason.UNEXPECTED_TOKEN)]),
        ([RS, T, RE, BS, BE, *GOOD], [(0, 4, Reason.ARITY)]),
        ([RS, T, RE, BS, A, B, RE, C, D, BE, *GOOD], [(0, 6, Reason.UNEXPECTED_TOKEN)]),
        ([RS, T, RE, -100, BS, A, B, C, D, BE, *GOOD], [(0, 3, Reason.MASKED)]),
        ([*GOOD, RS, T, RE], [(9, 12, Reason.UNFINISHED)]),
        ([*GOOD, BS, A, B, C, D, BE], [(9, 9, Reason.STRAY_MARKER)]),  # a second box of the same description
        ([BE, *GOOD], [(0, 0, Reason.STRAY_MARKER)]),
    ],
)
def test_what_four_markers_leave_out(ids, expected):
    layout = find_layout(ids, VOCAB, FOUR)
    assert [o.bins for o in layout.objects] == [(10, 20, 30, 40)]
    assert reasons(layout) == expected


@pytest.mark.parametrize("arity", [1, 2, 3, 5, 6, 8])
def test_json_box_of_another_arity_does_not_shift_its_neighbours(arity):
    def box(n):
        return [x for k in range(n) for x in (100 + k, 7)][:-1]

    layout = find_layout([9, *box(4), 8, T, 9, *box(arity), 8, U, 9, *box(4), 8], VOCAB)
    assert [o.bins for o in layout.objects] == [(0, 1, 2, 3)] * 2
    assert reasons(layout) == [(11, 11 + 2 * arity - 1, Reason.ARITY)]


def test_json_side_cases():
    assert [o.bins for o in find_layout([T, A, B, C, D], VOCAB).objects] == [(10, 20, 30, 40)]
    assert reasons(find_layout([A, B, C, D], VOCAB)) == [(0, 4, Reason.NO_LOGITS)]
    masked = find_layout([T, A, -100, B, -100, C, -100, D], VOCAB)
    assert masked.objects == () and reasons(masked) == [(1, 8, Reason.ARITY)]
    shared = find_layout([T, A, 7, B, 7, C, 7, D, 8, A, 8, B, 8, C], VOCAB)  # D ends one run and begins another
    assert [o.coord_positions for o in shared.objects] == [(1, 3, 5, 7)]
    assert reasons(shared) == [(9, 14, Reason.ARITY)]


def test_no_coordinates_no_objects():
    for markers in (PAIR, FOUR, None):
        empty = find_layout([], VOCAB, markers)
        assert empty == type(empty)((), (), (), (), ())
        assert find_layout([T, U], VOCAB, markers).structure_positions == (0, 1)
        assert find_layout([-100] * 5, VOCAB, markers).structure_positions == ()


def test_arrays_and_tensors_give_the_same_layout_in_plain_integers():
    torch = pytest.importorskip("torch", reason="layouts of tensors")
    expected = find_layout(GOOD, VOCAB, FOUR)
    for ids in (np.array(GOOD), torch.tensor(GOOD), tuple(GOOD), list(np.array(GOOD)), iter(GOOD)):
        layout = find_layout(ids, VOCAB, FOUR)
        assert layout == expected
        assert json.dumps(layout.objects[0].bins)  # NumPy integers would not serialise
    assert find_layout(GOOD, VOCAB, torch.tensor(FOUR)) == find_layout(GOOD, VOCAB, list(FOUR)) == expected


@pytest.mark.parametrize("markers", [(S,), (S, E, BS), (S, S), (S, 100), (-100, E), (S, None), ("a", "b"), 7])
def test_markers_that_cannot_be(markers):
    with pytest.raises(ValueError, match="markers: expected 2 or 4 different token ids"):
        find_layout([T], VOCAB, markers)


@pytest.mark.parametrize("ids", [[[S, T]], np.zeros((2, 3), int), np.array(5), [0.5], None])
def test_what_is_no_sequence_of_ids(ids):
    with pytest.raises(ValueError, match="ids: expected one sequence"):
        find_layout(ids, VOCAB, PAIR)


def test_reasons_are_counted_by_plain_words():
    (omission,) = find_layout([S, T, E], VOCAB, PAIR).reasons
    assert omission == Omission(0, 2, Reason.ARITY)
    assert json.dumps({omission.reason: 1}) == '{"arity": 1}'


def causal_model(ids):
    """Logits [T, V] of a model that knows the sequence by heart; the last position has nothing to predict."""
    logits = np.zeros((len(ids), VOCAB.ids.stop), dtype=np.float32)
    logits[np.arange(len(ids) - 1), ids[1:]] = 1.0
    return logits


def write(boxes, markers):
    if markers is None:
        rows = [[50, 51, a, 7, b, 7, c, 7, d, 8] for a, b, c, d in boxes]
    elif len(markers) == 2:
        rows = [[S, T, *box, E] for box in boxes]
    else:
        rows = [[RS, T, RE, BS, *box, BE] for box in boxes]
    return [U, U, *(i for row in rows for i in row), U]


def read(logits, layout, shift):
    positions = np.array([o.logit_positions for o in layout.objects]) + shift
    return logits[positions][..., VOCAB.first_id :].argmax(-1)


@pytest.mark.parametrize("markers", [PAIR, FOUR, None])
def test_the_bins_are_read_where_they_are_predicted_and_nowhere_else(markers):
    """A causal model's position p predicts the token at p + 1."""
    bins = st.lists(st.integers(0, 999), min_size=4, max_size=4, unique=True)

    @given(st.lists(bins, min_size=1, max_size=5))
    def check(boxes):
        ids = write([[VOCAB.bin_to_id(k) for k in box] for box in boxes], markers)
        layout = find_layout(ids, VOCAB, markers)
        logits = causal_model(ids)
        assert read(logits, layout, 0).tolist() == boxes
        assert [list(o.bins) for o in layout.objects] == boxes
        for shift in (-1, 1):
            assert read(logits, layout, shift).tolist() != boxes

    check()


def test_point_is_the_pair_with_the_shorter_gap():
    layout = find_layout([T, A, 8, 9, B, 7, C, 8, 9, D, 7, A], VOCAB, geometry="point")
    assert [o.bins for o in layout.objects] == [(20, 30), (40, 10)] and reasons(layout) == [(1, 2, Reason.ARITY)]
