"""The head on supervised rows, with and without PEFT and offsets, against the plain computation."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from coord_codec import CoordVocab, find_layout
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots
from coord_trainer.training.head import Head, RowHead, row_selecting_head

V, H, FIRST = 1100, 8, 50
VOCAB = CoordVocab(FIRST)
START, END = 2, 3


class Model(nn.Module):
    """An embedding and a head: all that the row head touches."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(V, H, dtype=torch.float64)
        self.lm_head = nn.Linear(H, V, bias=False, dtype=torch.float64)

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, ids):
        return self.lm_head(self.embed(ids))


def batch(seed, samples=3):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((samples, 24), 1)
    labels = torch.full_like(ids, -100)
    for row in range(samples):
        answer = []
        for _ in range(row):  # the first sample has no object
            sides = torch.randint(0, 1000, (4,), generator=generator).tolist()
            answer += [START, 10 + row, *(FIRST + side for side in sides), END]
        answer += [4]
        ids[row, 5 : 5 + len(answer)] = labels[row, 5 : 5 + len(answer)] = torch.tensor(answer)
    layouts = [find_layout(row.tolist(), VOCAB, (START, END)) for row in labels]
    return ids, labels, ObjectSlots.from_layouts(layouts, labels, [None] * samples, VOCAB)


def run(model, config, ids, labels, slots, fused=True):
    rows = RowHead(CoordObjective(config, VOCAB), labels, slots, want_diagnostics=True, fused=fused)
    with row_selecting_head(model, Head(model.lm_head), rows):
        sums = model(ids)
    return rows, rows.rejoin(sums)


@pytest.mark.parametrize("config", [ObjectiveConfig.mixed(), ObjectiveConfig.group_b(), ObjectiveConfig.group_a()])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "readable"])
def test_row_head_gives_the_loss_and_gradients_of_all_logits(config, fused):
    model = Model()
    ids, labels, slots = batch(1)
    _, output = run(model, config, ids, labels, slots, fused)
    output.total().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    keep = labels[:, 1:] != -100
    logits, targets = model(ids)[:, :-1][keep], labels[:, 1:][keep]
    naive = CoordObjective(config, VOCAB)(logits, targets, slots).total()
    naive.backward()
    torch.testing.assert_close(output.total(), naive, rtol=1e-12, atol=0)
    for one, other in zip(found, (p.grad for p in model.parameters()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_group_a_is_the_cross_entropy_of_all_supervised_tokens():
    model = Model()
    ids, labels, slots = batch(2)
    _, output = run(model, ObjectiveConfig.group_a(), ids, labels, slots)
    expected = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(output.total(), expected, rtol=1e-12, atol=0)


def test_row_selecting_head_sees_supervised_rows_alone_and_restores_the_forward():
    model = Model()
    ids, labels, slots = batch(3)
    rows, _ = run(model, ObjectiveConfig.soft(), ids, labels, slots)
    assert rows.rows == int((labels[:, 1:] != -100).sum()) < ids.numel()
    assert "forward" not in model.lm_head.__dict__
    assert model(ids).shape == (*ids.shape, V)
    with pytest.raises(RuntimeError), row_selecting_head(model, Head(model.lm_head), rows):
        raise RuntimeError
    assert "forward" not in model.lm_head.__dict__
