"""Initial rows against their formulas, written out entry by entry."""

import math

import pytest
import torch

from coord_adapter import new_token_rows, smooth_rows, smooth_rows_2d
from coord_adapter.initial_rows import NOISE


def naive_features(x, width, max_frequency=64.0):
    """Sines, then cosines of one position, root mean square 1."""
    pairs = math.ceil(width / 2)
    steps = [k / (pairs - 1) if pairs > 1 else 0.0 for k in range(pairs)]
    angles = [math.pi * x * 0.25 ** (1 - step) * max_frequency**step for step in steps]
    return [math.sqrt(2) * f(angle) for f in (math.sin, math.cos) for angle in angles][:width]


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_smooth_rows_are_sines_and_cosines_of_the_bin(width):
    expected = [[0.02 * value for value in naive_features(k / 50, width)] for k in range(50)]
    rows = smooth_rows(50, width, std=0.02)
    torch.testing.assert_close(rows, torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_smooth_rows_of_neighbours_are_alike():
    similarity = torch.nn.functional.cosine_similarity
    rows = smooth_rows(1000, 256, std=1.0)
    assert similarity(rows[1:], rows[:-1]).min() > 0.99
    assert similarity(rows[500:501], torch.cat([rows[:400], rows[600:]])).max() < 0.7


def test_smooth_rows_2d_code_line_and_column():
    rows = smooth_rows_2d(4, 9, std=0.5)
    for line in range(4):
        for column in range(4):
            expected = naive_features(line / 4, 4, 4.0) + naive_features(column / 4, 5, 4.0)
            torch.testing.assert_close(rows[4 * line + column], 0.5 * torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_new_token_rows_mean_adds_seeded_noise_to_the_mean():
    mean_H, std_H = torch.linspace(-1, 1, 6), torch.linspace(0.1, 0.6, 6)
    rows = new_token_rows(mean_H, std_H, range(10, 4010), coords=range(20, 30), init="mean", seed=3)
    torch.testing.assert_close(rows.mean(0), mean_H, rtol=0, atol=0.01)
    torch.testing.assert_close(rows.std(0), NOISE * std_H, rtol=0.05, atol=0)
    again = new_token_rows(mean_H, std_H, range(10, 4010), coords=range(20, 30), init="mean", seed=3)
    other = new_token_rows(mean_H, std_H, range(10, 4010), coords=range(20, 30), init="mean", seed=4)
    assert torch.equal(rows, again)
    assert not torch.equal(rows, other)


@pytest.mark.parametrize(("ids", "coords"), [((10, 40), (20, 30)), ((25, 40), (20, 30)), ((10, 15), (20, 30))])
def test_new_token_rows_smooth_replaces_the_coordinates_alone(ids, coords):
    ids, coords = range(*ids), range(*coords)
    mean_H, std_H = torch.linspace(-1, 1, 7), torch.linspace(0.1, 0.7, 7)
    arguments = {"coords": coords, "seed": 3}
    mean, smooth = (new_token_rows(mean_H, std_H, ids, init=init, **arguments) for init in ("mean", "smooth"))
    for row, token in enumerate(ids):
        if token in coords:
            features = torch.tensor(naive_features((token - coords[0]) / len(coords), 7))
            torch.testing.assert_close(smooth[row], mean_H + std_H * features)
        else:
            assert torch.equal(smooth[row], mean[row])
