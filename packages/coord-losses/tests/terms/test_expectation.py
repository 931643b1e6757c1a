"""Expected coordinates, and boxes of four of them."""

import pytest
import torch

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordExp, expectation

F64 = torch.float64


def test_expectation_is_the_mean_of_the_grid():
    grid = CoordGrid(bins=5, scale=8)
    logits = torch.randn(3, 5, dtype=F64)
    values = [grid.dequantize(k) for k in range(5)]
    p = torch.softmax(logits / 2.0, 1).tolist()
    expected = [sum(w * v for w, v in zip(row, values, strict=True)) for row in p]
    assert expectation(logits, grid, temperature=2.0).tolist() == pytest.approx(expected, rel=1e-12)


def test_expectation_uses_the_default_grid():
    logits = torch.full((2, 1000), -1e4)
    logits[0, 0] = logits[1, 999] = 1e4
    assert expectation(logits).tolist() == pytest.approx([0.0, 0.999])
    assert expectation(torch.zeros(1, 1000, dtype=F64)).item() == pytest.approx(0.4995)


def test_expectation_refuses_the_full_vocabulary():
    with pytest.raises(ValueError, match="coordinate tokens' logits only"):
        expectation(torch.zeros(1, 1001))


def test_coordexp_decodes_the_given_positions():
    vocab = CoordVocab(first_id=7, grid=CoordGrid(bins=10, scale=10))
    logits = torch.randn(2, 12, 20, generator=torch.Generator().manual_seed(0), dtype=F64)
    positions = [[[1, 2, 3, 4], [7, 8, 9, 10]], []]
    found = CoordExp(vocab, temperature=0.5)(logits, positions)
    assert [tuple(boxes.shape) for boxes in found] == [(2, 4), (0, 4)]
    for m, four in enumerate(positions[0]):
        for side, s in enumerate(four):
            p = torch.softmax(logits[0, s, 7:17] / 0.5, 0)
            assert found[0][m, side].item() == pytest.approx(sum(p[k].item() * k / 10 for k in range(10)))
    assert torch.equal(CoordExp(vocab, 0.5)(logits, [torch.tensor(positions[0]), torch.empty(0, 4)])[0], found[0])


def test_coordexp_is_differentiable_at_its_positions_only():
    vocab = CoordVocab(first_id=2, grid=CoordGrid(bins=5, scale=5))
    logits = torch.randn(1, 6, 7, requires_grad=True)
    CoordExp(vocab)(logits, [[[0, 1, 2, 3]]])[0][0, 3].backward()
    assert logits.grad.abs().sum((0, 2)).nonzero().flatten().tolist() == [3]
    assert logits.grad[..., :2].abs().sum() == 0


@pytest.mark.parametrize(
    ("positions", "words"), [([[[0, 1, 2]]], "four positions"), ([[[0, 1, 2, 3]]] * 2, "2 samples")]
)
def test_coordexp_errors_name_the_cause(positions, words):
    vocab = CoordVocab(first_id=2, grid=CoordGrid(bins=5, scale=5))
    with pytest.raises(ValueError, match=words):
        CoordExp(vocab)(torch.zeros(1, 6, 7), positions)


def test_coordexp_refuses_a_vocabulary_that_was_not_expanded():
    with pytest.raises(ValueError, match="expanded"):
        CoordExp(CoordVocab(first_id=5))(torch.zeros(1, 6, 7), [[]])
