"""Coordinate token text: exactly one spelling per bin."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coord_codec import (
    WILDCARD_TOKEN,
    CoordGrid,
    InputError,
    coord_tokens,
    int_to_token,
    ints_to_tokens,
    is_coord_token,
    token_to_int,
    tokens_to_ints,
)

NOT_TOKENS = [
    "<|coord_007|>", "<|coord_00|>", "<|coord_1000|>", "<|coord_-1|>", "<|coord_+1|>", "<|coord_*|>",
    "<|coord_|>", "<|coord_ 1|>", "<|coord_1.0|>", "<|coord_1_0|>", "<|coord_\u0663|>", "<|coord_\u00b2|>",
    "<|Coord_1|>", "<|coord_1|> ", "<|coord_1|>\n", " <|coord_1|>", "<|coord_1|", "coord_1", "1", "",
    "<|coord_" + "9" * 5000 + "|>",
]  # fmt: skip


@given(st.integers(0, 999))
def test_round_trip(k):
    token = int_to_token(k)
    assert token == "<|coord_" + str(k) + "|>"
    assert is_coord_token(token)
    assert token_to_int(token) == k


@pytest.mark.parametrize("text", NOT_TOKENS)
def test_other_spellings_are_not_tokens(text):
    assert not is_coord_token(text)
    with pytest.raises(ValueError, match="not a coordinate token"):
        token_to_int(text)


@pytest.mark.parametrize("value", [None, 7, b"<|coord_1|>", ["<|coord_1|>"]])
def test_other_types_are_not_tokens(value):
    assert not is_coord_token(value)


@given(st.from_regex(re.compile(r"<\|coord_[0-9*+-]{0,5}\|>"), fullmatch=True) | st.text(max_size=16))
def test_a_text_is_a_token_exactly_if_it_is_in_the_list(text):
    assert is_coord_token(text) == (text in {f"<|coord_{k}|>" for k in range(1000)})


def test_sequences():
    assert ints_to_tokens([0, 999]) == ["<|coord_0|>", "<|coord_999|>"]
    assert tokens_to_ints(["<|coord_0|>", "<|coord_999|>"]) == [0, 999]
    assert tokens_to_ints([]) == ints_to_tokens([]) == []
    with pytest.raises(ValueError, match=r"coord_1000"):
        tokens_to_ints(["<|coord_0|>", "<|coord_1000|>"])


def test_all_tokens_in_order_without_the_wildcard():
    tokens = coord_tokens()
    assert len(tokens) == 1000 and tokens[0] == "<|coord_0|>" and tokens[-1] == "<|coord_999|>"
    assert tokens_to_ints(tokens) == list(range(1000))
    assert WILDCARD_TOKEN == "<|coord_*|>" and WILDCARD_TOKEN not in tokens


def test_another_grid_has_other_tokens():
    grid = CoordGrid(bins=32, scale=32)
    assert len(coord_tokens(grid)) == 32
    assert is_coord_token("<|coord_31|>", grid) and not is_coord_token("<|coord_32|>", grid)
    assert is_coord_token("<|coord_1000|>", CoordGrid(1001, 1000))


@pytest.mark.parametrize(
    ("bad", "error"), [(-1, ValueError), (1000, ValueError), *((wrong, InputError) for wrong in (1.0, True))]
)
def test_only_bins_have_tokens(bad, error):
    with pytest.raises(error):
        int_to_token(bad)
