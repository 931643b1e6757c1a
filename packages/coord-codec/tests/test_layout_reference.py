"""find_layout against independent, naive references: regular expressions over one letter per id."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_codec import CoordGrid, CoordVocab, Reason, find_layout

VOCAB = CoordVocab(100, CoordGrid(16, 16))
PAIR, FOUR = (1, 2), (1, 3, 4, 2)
thorough = settings(max_examples=4 * settings().max_examples)

IGNORED = st.sampled_from([-100, -1])
TEXT = st.integers(50, 52)
COORD = st.integers(100, 115)


def letters(ids):
    """S start, E end, R and B the inner markers, c coordinate, t text, # no position."""
    named = {1: "S", 2: "E", 3: "R", 4: "B"}
    return "".join("#" if i < 0 else "c" if 100 <= i < 116 else named.get(i, "t") for i in ids)


def fragments(markers):
    """Sequences that come near the grammar: whole objects, broken ones and noise."""
    start, *inner, end = markers
    coords = st.lists(COORD, max_size=7)
    objects = st.tuples(st.lists(TEXT, max_size=2), coords).map(lambda t: [start, *t[0], *inner, *t[1], end])
    noise = st.lists(TEXT | COORD | IGNORED | st.sampled_from(markers), max_size=3)
    return st.lists(objects | noise, max_size=8).map(lambda parts: [i for part in parts for i in part])


CASES = [(PAIR, r"S(t+)((?:cc){2,})E"), (FOUR, r"S(t+)RB((?:cc){2,})E")]


@pytest.mark.parametrize(("markers", "pattern"), CASES)
def test_objects_are_those_of_the_regular_expression(markers, pattern):
    @given(fragments(markers))
    @thorough
    def check(ids):
        layout = find_layout(ids, VOCAB, markers)
        # With two markers the inner ones (3, 4) never occur, with four they all do.
        found = list(re.finditer(pattern, letters(ids)))
        assert [o.desc_positions for o in layout.objects] == [tuple(range(*m.span(1))) for m in found]
        assert [o.coord_positions for o in layout.objects] == [tuple(range(*m.span(2))) for m in found]
        assert [o.bins for o in layout.objects] == [tuple(i - 100 for i in ids[slice(*m.span(2))]) for m in found]

    check()


@pytest.mark.parametrize("markers", [PAIR, FOUR, None])
def test_positions_are_a_partition_and_nothing_is_left_out_in_silence(markers):
    @given(fragments(markers or FOUR))
    @thorough
    def check(ids):
        layout = find_layout(ids, VOCAB, markers)
        kinds = [*layout.coord_positions, *layout.desc_positions, *layout.structure_positions]
        assert sorted(kinds) == [p for p, i in enumerate(ids) if i >= 0]
        assert list(layout.coord_positions) == [p for p, c in enumerate(letters(ids)) if c == "c"]
        assert list(layout.desc_positions) == [p for o in layout.objects for p in o.desc_positions]
        for obj in layout.objects:
            assert obj.logit_positions == tuple(p - 1 for p in obj.coord_positions)
            assert min(obj.logit_positions) >= 0

        assert [r.start for r in layout.reasons] == sorted(r.start for r in layout.reasons)
        inside = {p for o in layout.objects for p in o.coord_positions}
        outside = [p for p in layout.coord_positions if p not in inside]
        assert bool(outside) <= bool(layout.reasons)
        if markers:
            stray = (Reason.STRAY_COORDINATE, Reason.STRAY_MARKER)
            opened = sum(r.reason not in stray for r in layout.reasons)
            assert letters(ids).count("S") == len(layout.objects) + opened
        else:
            assert all(any(r.start <= p < r.position for r in layout.reasons) for p in outside)

    check()


@given(st.lists(TEXT | COORD | st.just(-100), max_size=14) | fragments(FOUR))
@thorough
def test_json_objects_are_those_of_the_definition(ids):
    """Try every four coordinates in a row: three equal gaps, and other gaps on both sides."""
    coords = [p for p, c in enumerate(letters(ids)) if c == "c"]
    gaps = [ids[a + 1 : b] for a, b in pairwise(coords)]
    expected, free = [], 0
    for n in range(len(coords) - 3):
        first, second, third = gaps[n : n + 3]
        alone = (n == 0 or gaps[n - 1] != first) and (n + 3 == len(gaps) or gaps[n + 3] != first)
        if n >= free and first == second == third and alone and min(first, default=0) >= 0:
            expected.append(tuple(coords[n : n + 4]))
            free = n + 4
    found = [o.coord_positions for o in find_layout(ids, VOCAB).objects]
    assert found == [box for box in expected if box[0] > 0]


@given(st.lists(st.integers(), max_size=30), st.sampled_from([PAIR, FOUR, None]))
@thorough
def test_any_integers_have_a_layout(ids, markers):
    layout = find_layout(ids, VOCAB, markers)
    assert len(layout.coord_positions) == sum(100 <= i < 116 for i in ids)


@pytest.mark.slow
@given(fragments(PAIR))
@thorough
def test_a_masked_prompt_of_any_length_only_moves_the_positions(ids):
    plain, moved = find_layout(ids, VOCAB, PAIR), find_layout([-100] * 7 + ids, VOCAB, PAIR)
    assert [o.bins for o in plain.objects] == [o.bins for o in moved.objects]
    assert [p + 7 for p in plain.structure_positions] == list(moved.structure_positions)
