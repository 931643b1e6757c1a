"""The rows of a head that computes all positions: plain cross-entropy is Hugging Face's own sum."""

import pytest
import tiny_models
import torch
from torch.nn.functional import cross_entropy

from coord_losses import ObjectiveConfig
from coord_losses.hf.head import RowHead, replaced_forward


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("denominators", [None, {"tokens": 50, "coord_tokens": 9, "objects": 3}])
def test_plain_cross_entropy_of_all_positions_has_its_smoothing(smoothing, denominators):
    torch.manual_seed(0)
    labels_BT = torch.randint(0, 60, (2, 9))
    labels_BT[:, :3] = -100
    logits_BTV = torch.randn(2, 9, 60, requires_grad=True)
    rows = RowHead(
        tiny_models.objective(ObjectiveConfig.group_a(label_smoothing=smoothing)), labels_BT, denominators=denominators
    )
    total = rows.total(rows.read_positions(logits_BTV))
    pairs = logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten()
    expected = cross_entropy(*pairs, reduction="sum", label_smoothing=smoothing)
    expected = expected / (denominators or {"tokens": int((pairs[1] >= 0).sum())})["tokens"]
    torch.testing.assert_close(total, expected)
    for mine, theirs in zip(
        *(torch.autograd.grad(one, logits_BTV, retain_graph=True) for one in (total, expected)), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_sums_that_a_wrapper_returned_are_the_terms_and_the_plain_sum_last():
    torch.manual_seed(0)
    labels_BT = torch.randint(0, 60, (2, 9))
    idle = [torch.nn.Parameter(torch.ones(3)) for _ in range(3)]
    rows = RowHead(tiny_models.objective(ObjectiveConfig.group_a()), labels_BT, idle=idle, denominators={"tokens": 4})
    output = rows.read_positions(torch.randn(2, 9, 60, requires_grad=True))
    sums_1L = rows.sums()
    assert sums_1L[0].tolist() == [term.sum.item() for term in output.terms.values()] + [rows.causal_lm.item()]
    again = rows.rejoin(2 * sums_1L)
    assert [t.sum.item() for t in again.terms.values()] == [2 * t.sum.item() for t in output.terms.values()]
    assert rows.total(again).item() == pytest.approx(2 * sums_1L[0, -1].item() / 4)
    rows.total(again).backward()
    assert [one.grad.tolist() for one in idle] == 3 * [[0, 0, 0]]
    assert rows.rows == labels_BT.numel()  # of all positions, and below of those with a label
    labels_BT[:, 2:4] = -100
    rows = RowHead(tiny_models.objective(), labels_BT)
    assert rows.take(torch.ones(2, 9, 4)).shape == (12, 4) and rows.rows == 12


@pytest.mark.parametrize("own", [False, True])
def test_forward_pass_that_was_replaced_is_there_again(own):
    layer = torch.nn.Linear(2, 2)
    mine = (lambda x: x - 1) if own else None
    if own:
        layer.forward = mine
    with pytest.raises(RuntimeError, match="within"), replaced_forward(layer, lambda x: x + 1) as before:
        assert layer(torch.zeros(1)).tolist() == [1] and (before is mine) == own
        raise RuntimeError("within")
    assert layer.__dict__.get("forward") is mine
