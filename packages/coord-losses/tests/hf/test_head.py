"""The rows of a head that computes all positions: plain cross-entropy is Hugging Face's own sum."""

import pytest
import tiny_models
import torch
from torch.nn.functional import cross_entropy

from coord_losses import ObjectiveConfig
from coord_losses.hf.head import RowHead


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
