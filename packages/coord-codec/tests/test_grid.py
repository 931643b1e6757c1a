"""CoordGrid: one rounding rule for Python, NumPy and torch, bounded round trips, and no silent clipping."""

import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_codec import CoordGrid, InputError

np = pytest.importorskip("numpy", reason="the grid is compared with NumPy's rounding")

unit = st.floats(0, 1)
ties = st.integers(0, 999).map(lambda k: (k + 0.5) / 1000)
grids = st.tuples(st.integers(2, 5000), st.booleans()).map(lambda t: CoordGrid(t[0], t[0] - t[1]))
unbounded = settings(deadline=None)


def test_hand_worked_values():
    grid = CoordGrid()
    assert [grid.quantize(c) for c in (0, 0.0004, 0.0006, 0.1, 0.25, 0.9994, 0.9996, 1)] == [
        0, 0, 1, 100, 250, 999, 999, 999,
    ]  # fmt: skip
    assert [grid.quantize(c) for c in (0.0005, 0.0015, 0.0025, 0.0125)] == [0, 2, 2, 12]  # half to even
    assert (grid.dequantize(0), grid.dequantize(250), grid.dequantize(999)) == (0.0, 0.25, 0.999)


@pytest.mark.parametrize("kind", [float, Fraction, np.float64, lambda value: np.array([value])])
def test_rounding_errors_at_both_ends_are_taken_in_every_kind_of_number(kind):
    grid, least, most = CoordGrid(), -1e-6, 1 + 1e-6
    found = [grid.quantize(kind(value)) for value in (least, -1e-9, 0.0, 1.0, 1 + 1e-9, most)]
    assert found == [0, 0, 0, 999, 999, 999]
    for value in (2 * least, math.nextafter(least, -1), math.nextafter(most, 2), 1.1, -0.1):
        with pytest.raises(ValueError, match="outside"):
            grid.quantize(kind(value))


def test_the_grid_of_peers_differs_where_it_should():
    assert CoordGrid(1000, 999).dequantize(999) == CoordGrid(1000, 999).dequantize(np.array([999]))[0] == 1.0
    assert CoordGrid(50, 100).dequantize(np.array([49])).tolist() == [0.49] and CoordGrid(50, 100).quantize(0.9) == 49
    assert CoordGrid(1000, 999).quantize(0.5) == 500  # 499.5 to even
    assert CoordGrid().quantize(0.5) == 500


@given(grids, unit)
@unbounded
def test_a_coordinate_comes_back_within_half_a_bin_or_the_last_bins_reach(grid, c):
    back = grid.dequantize(grid.quantize(c))
    last = (grid.bins - 1) / grid.scale
    bound = 0.5 / grid.scale if c <= last else max(0.5 / grid.scale, c - last)
    assert abs(back - c) <= bound + 1e-12


@given(grids, st.data())
@unbounded
def test_a_bin_comes_back_exactly(grid, data):
    k = data.draw(st.integers(0, grid.bins - 1))
    assert grid.quantize(grid.dequantize(k)) == k


@given(st.lists(unit | ties, max_size=20))
@unbounded
def test_python_numpy_and_torch_round_alike(values):
    torch = pytest.importorskip("torch", reason="the grid is compared with torch's rounding")
    grid = CoordGrid()
    expected = np.clip(np.rint(np.array(values, dtype=np.float64) * 1000), 0, 999).astype(np.int64)
    in_torch = (torch.tensor(values, dtype=torch.float64) * 1000).round().clamp(0, 999).long()
    assert [grid.quantize(c) for c in values] == expected.tolist() == in_torch.tolist()

    array = grid.quantize(np.array(values, dtype=np.float64))
    tensor = grid.quantize(torch.tensor(values, dtype=torch.float64))
    assert isinstance(array, np.ndarray) and array.dtype == np.int64 and array.tolist() == expected.tolist()
    assert tensor.dtype == torch.int64 and tensor.tolist() == expected.tolist()


@given(st.lists(st.floats(0, 1, width=32) | ties.map(lambda c: float(np.float32(c))), min_size=1, max_size=20))
@unbounded
def test_a_value_has_one_bin_whatever_its_type(values):
    torch = pytest.importorskip("torch", reason="float32 tensors")
    grid = CoordGrid()
    expected = [grid.quantize(c) for c in values]  # near a tie a float32 product rounds the other way
    assert grid.quantize(np.array(values, dtype=np.float32)).tolist() == expected
    assert grid.quantize(torch.tensor(values, dtype=torch.float32)).tolist() == expected
    assert grid.quantize(np.float32(values[0])) == expected[0]


def test_shapes_and_types_are_kept():
    torch = pytest.importorskip("torch", reason="tensors")
    grid = CoordGrid()
    assert grid.quantize(np.zeros((2, 3, 4))).shape == (2, 3, 4)
    assert grid.quantize(torch.zeros(2, 4)).shape == (2, 4)
    assert grid.quantize(np.zeros((0, 4))).shape == (0, 4)
    assert type(grid.quantize(0.5)) is int and type(grid.dequantize(5)) is float
    assert grid.dequantize(np.arange(3)).dtype == np.float64
    assert grid.dequantize(torch.arange(3)).dtype == torch.float32
    assert grid.dequantize(torch.arange(3, dtype=torch.float64)).tolist() == [0.0, 0.001, 0.002]


@pytest.mark.parametrize("bad", [-2e-6, 1 + 2e-6, 640, float("nan"), float("inf"), -float("inf"), 10**400])
def test_what_is_not_a_fraction_is_refused_in_every_kind(bad):
    grid = CoordGrid()
    with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
        grid.quantize(bad)
    if bad != 10**400:
        torch = pytest.importorskip("torch", reason="tensors")
        for many in (np.array([[0.5, bad]]), torch.tensor([[0.5, bad]], dtype=torch.float64), np.float64(bad)):
            with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
                grid.quantize(many)


def test_float_noise_around_the_ends_is_clamped():
    grid = CoordGrid()
    assert grid.quantize(-1e-7) == 0 and grid.quantize(1 + 1e-7) == 999
    assert grid.quantize(np.array([-1e-7, 1 + 1e-7])).tolist() == [0, 999]


@pytest.mark.parametrize("bad", [-1, 1000, np.int64(1000), np.array([3, 1000]), np.array([0.5])])
def test_only_bins_are_dequantized(bad):
    with pytest.raises(ValueError, match=r"0\.\.999"):
        CoordGrid().dequantize(bad)


@pytest.mark.parametrize("bad", ["0.5", None, True, [0.5]])
def test_other_types_are_named(bad):
    with pytest.raises(InputError, match="found"):
        CoordGrid().quantize(bad)
    with pytest.raises(InputError, match="found"):
        CoordGrid().dequantize(bad)


@pytest.mark.parametrize(
    ("field", "bad"), [("bins", 1), ("bins", 2.5), ("bins", True), ("scale", True), ("scale", 0), ("scale", "1000")]
)
def test_a_grid_without_sense_is_refused(field, bad):
    with pytest.raises(ValueError, match=f"CoordGrid.{field}"):
        CoordGrid(**{field: bad})


def test_frozen_and_hashable():
    assert len({CoordGrid(), CoordGrid(1000, 1000), CoordGrid(1000, 999)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        CoordGrid().bins = 5
