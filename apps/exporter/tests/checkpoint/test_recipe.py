"""Recipes: the chunks of rows that a tensor is made in."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tiny_checkpoint import plain_recipe

from coord_exporter.checkpoint.read import read_safetensors
from coord_exporter.checkpoint.recipe import first_not_finite, same_values


@given(rows=st.integers(0, 5000), width=st.integers(1, 100_000))
def test_chunks_cover_all_rows_in_blocks_of_64(rows, width):
    chunks = list(plain_recipe(rows, width).chunks())
    assert [row for lo, hi in chunks for row in range(lo, hi)] == list(range(rows))
    assert all(lo % 64 == 0 and hi - lo >= min(64, rows) for lo, hi in chunks)
    assert all((hi - lo) * width < 2 * max(1 << 19, 64 * width) for lo, hi in chunks)


def test_values_are_the_same_in_one_type_and_shape_alone(tmp_path):
    other = torch.arange(6.0)
    other[5] = -5
    tensors = {
        "one": torch.arange(6.0).reshape(2, 3),
        "copy": torch.arange(6.0).reshape(2, 3),
        "shape": torch.arange(6.0).reshape(3, 2),
        "type": torch.arange(6.0).view(torch.int32).reshape(2, 3),  # the same bytes
        "last": other.reshape(2, 3),
    }
    save_file(tensors, tmp_path / "f.safetensors")
    infos = {tensor.name: tensor for tensor in read_safetensors(tmp_path / "f.safetensors").tensors}
    assert {name for name, info in infos.items() if same_values(infos["one"], info)} == {"one", "copy"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_first_row_that_is_not_finite_is_named_and_a_large_sum_is_none(value):
    rows = torch.full((4, 3), 3e38)
    assert first_not_finite(rows) is None  # though their sum is infinite
    rows[2, 1] = rows[3, 0] = value
    assert first_not_finite(rows) == 2 and first_not_finite(torch.zeros(0, 3)) is None
