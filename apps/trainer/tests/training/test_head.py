"""The head on supervised rows, with and without PEFT and offsets, against the plain computation."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from coord_codec import CoordVocab, find_layout
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots
from coord_losses.fused import head as fused_head
from coord_trainer.training.head import RowHead, row_selecting_head

V, H, FIRST = 1100, 8, 50
VOCAB = CoordVocab(FIRST)
START, END = 2, 3


CONFIGS = [
    ObjectiveConfig.mixed(),
    ObjectiveConfig.group_b(),
    ObjectiveConfig.group_a(),
    ObjectiveConfig.group_a(label_smoothing=0.2),
    ObjectiveConfig.mixed(label_smoothing=0.2),
]


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


def run(model, config, ids, labels, slots, fused=True, diagnostics=True, denominators=None):
    rows = RowHead(CoordObjective(config, VOCAB), labels, slots, diagnostics, fused, denominators=denominators)
    with row_selecting_head(model, model.lm_head, rows):
        sums = model(ids)
    return rows, rows.rejoin(sums)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "readable"])
def test_row_head_gives_the_loss_and_gradients_of_all_logits(config, fused):
    model = Model()
    ids, labels, slots = batch(1)
    rows, output = run(model, config, ids, labels, slots, fused)
    total = rows.total(output)
    total.backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    keep = labels[:, 1:] != -100
    logits, targets = model(ids)[:, :-1][keep], labels[:, 1:][keep]
    naive = CoordObjective(config, VOCAB)(logits, targets, slots).total()
    naive.backward()
    digits = {"rtol": 1e-12, "atol": 1e-14} if rows.causal_lm is None else {"rtol": 1e-6, "atol": 1e-8}  # in float32
    torch.testing.assert_close(total, naive, **digits)
    for one, other in zip(found, (p.grad for p in model.parameters()), strict=True):
        torch.testing.assert_close(one, other, **digits | {"rtol": 100 * digits["rtol"]})


def test_group_a_is_the_cross_entropy_of_all_supervised_tokens():
    model = Model()
    ids, labels, slots = batch(2)
    _, output = run(model, ObjectiveConfig.group_a(), ids, labels, slots)
    expected = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(output.total(), expected, rtol=1e-12, atol=0)


class HeadProducts(TorchDispatchMode):
    """Adds up matrix products with the vocabulary, in units of all rows' product with the head."""

    def __init__(self, rows):
        super().__init__()
        self.unit, self.count = rows * V * H, 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm_):
            left, right = args[-2:]
            if V in {*left.shape, *right.shape}:
                self.count += left.shape[0] * right.numel() / self.unit
        return func(*args, **(kwargs or {}))


# Group B applies the head to text alone, half of the rows.
@pytest.mark.parametrize(
    ("config", "expected"), list(zip(CONFIGS, [(4, 3), (2, 1.5), (4, 3), (4, 3), (4, 3)], strict=True))
)
def test_row_head_computes_a_trained_heads_logits_once_where_denominators_are_known(config, expected, monkeypatch):
    monkeypatch.setattr(fused_head, "_LOGIT_BYTES", {"cpu": 8 * V * 5})
    model = Model()
    ids, labels, slots = batch(4)
    denominators = {"tokens": torch.tensor(40), "coord_tokens": torch.tensor(30), "objects": torch.tensor(8)}
    products, gradients = [], []
    for given in (None, denominators):
        with HeadProducts(int((labels[:, 1:] != -100).sum())) as seen:
            _, output = run(model, config, ids, labels, slots, diagnostics=False, denominators=given)
            loss = 3 * output.total(denominators)  # as loss scaling and the number of ranks multiply it
            gradients.append(torch.autograd.grad(loss, list(model.parameters())))
        products.append(seen.count)
    assert products == pytest.approx(expected)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)


def test_row_selecting_head_sees_supervised_rows_alone_and_restores_the_forward():
    model = Model()
    ids, labels, slots = batch(3)
    rows, _ = run(model, ObjectiveConfig.soft(), ids, labels, slots)
    assert rows.rows == int((labels[:, 1:] != -100).sum()) < ids.numel()
    assert "forward" not in model.lm_head.__dict__
    assert model(ids).shape == (*ids.shape, V)
    with pytest.raises(RuntimeError), row_selecting_head(model, model.lm_head, rows):
        raise RuntimeError
    assert "forward" not in model.lm_head.__dict__


@pytest.mark.parametrize("fused", [True, False])
def test_head_with_a_bias_has_it_in_the_loss(fused):
    model = Model()
    ids, labels, slots = batch(1)
    before = {}
    for bias in (False, True):
        if bias:
            model.lm_head = nn.Linear(H, V, dtype=torch.float64)
            model.lm_head.bias.data.normal_(std=3.0)
        rows = RowHead(CoordObjective(CONFIGS[0], VOCAB), labels, slots, False, fused)
        with row_selecting_head(model, model.lm_head, rows):
            before[bias] = float(rows.rejoin(model(ids)).total())
        logits, keep = model(ids), labels[:, 1:] != -100
        expected = CoordObjective(CONFIGS[0], VOCAB)(logits[:, :-1][keep], labels[:, 1:][keep], slots).total()
        assert before[bias] == pytest.approx(float(expected), rel=1e-9)
    assert before[True] != pytest.approx(before[False], rel=1e-2)
