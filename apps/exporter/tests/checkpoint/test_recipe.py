"""Recipes: the chunks of rows that a tensor is made in."""

from hypothesis import given
from hypothesis import strategies as st
from tiny_checkpoint import plain_recipe


@given(rows=st.integers(0, 5000), width=st.integers(1, 100_000))
def test_chunks_cover_all_rows_in_blocks_of_64(rows, width):
    chunks = list(plain_recipe(rows, width).chunks())
    assert [row for lo, hi in chunks for row in range(lo, hi)] == list(range(rows))
    assert all(lo % 64 == 0 and hi - lo >= min(64, rows) for lo, hi in chunks)
    assert all((hi - lo) * width < 2 * max(1 << 19, 64 * width) for lo, hi in chunks)
