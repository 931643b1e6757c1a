"""A causal model's position p predicts the token at p + 1: the coordinates read back at `logit_positions`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_codec import CoordVocab, find_layout

np = pytest.importorskip("numpy", reason="the model's logits")

VOCAB = CoordVocab(20)
VOCAB_SIZE = 1020
MARKERS = {"two": (1, 2), "four": (1, 2, 3, 4), "none": None}


def causal_model(ids):
    """Logits [T, V] of a model that knows the sequence by heart; the last position has nothing to predict."""
    logits = np.zeros((len(ids), VOCAB_SIZE), dtype=np.float32)
    logits[np.arange(len(ids) - 1), ids[1:]] = 1.0
    return logits


def write(boxes, markers):
    if markers is None:
        rows = [[5, 6, a, 7, b, 7, c, 7, d, 8] for a, b, c, d in boxes]
    elif len(markers) == 2:
        rows = [[1, 6, *box, 2] for box in boxes]
    else:
        rows = [[1, 6, 2, 3, *box, 4] for box in boxes]
    return [9, 9, *(i for row in rows for i in row), 9]


def read(logits, layout, shift):
    positions = np.array([o.logit_positions for o in layout.objects]) + shift
    return logits[positions][..., 20:].argmax(-1)


@pytest.mark.parametrize("family", MARKERS)
def test_the_bins_are_read_where_they_are_predicted_and_nowhere_else(family):
    bins = st.lists(st.integers(0, 999), min_size=4, max_size=4, unique=True)

    @given(st.lists(bins, min_size=1, max_size=5))
    @settings(deadline=None, max_examples=25)
    def check(boxes):
        ids = write([[VOCAB.bin_to_id(k) for k in box] for box in boxes], MARKERS[family])
        layout = find_layout(ids, VOCAB, MARKERS[family])
        logits = causal_model(ids)
        assert read(logits, layout, 0).tolist() == boxes
        assert [list(o.bins) for o in layout.objects] == boxes
        for shift in (-1, 1):
            assert read(logits, layout, shift).tolist() != boxes

    check()
