"""Small batches for the fused objective, and the readable form it must agree with."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots

F64 = torch.float64
H = 6


def problem(text, objects, vocab, vocab_size, seed, dtype=F64):
    """Hidden states, head, targets in random order and slots of a batch."""
    rng = torch.Generator().manual_seed(seed)
    outside = [i for i in range(vocab_size) if i not in vocab.ids]
    coords = torch.randint(vocab.ids[0], vocab.ids[-1] + 1, (4 * objects + 1,), generator=rng)
    coords = coords[: 4 * objects + (objects > 0)]  # one coordinate that belongs to no object
    text = text if outside else 0
    words = torch.tensor(outside, dtype=torch.long)[torch.randint(0, max(1, len(outside)), (text,), generator=rng)]
    order = torch.randperm(text + len(coords), generator=rng)
    targets = torch.empty(len(order), dtype=torch.long)
    targets[order] = torch.cat([words, coords])
    slots = ObjectSlots(
        rows_M4=order[text : text + 4 * objects].view(-1, 4),
        boxes_M4=torch.rand(objects, 4, generator=rng, dtype=F64),
        image_M=torch.zeros(objects, dtype=torch.long),
    )
    hidden = torch.randn(len(targets), H, generator=rng, dtype=F64).to(dtype)
    weight = torch.randn(vocab_size, H, generator=rng, dtype=F64).to(dtype)
    return hidden, weight, targets, slots


def readable(objective, hidden, weight, targets, slots, offsets=None, ids=None, **after):
    logits = hidden @ weight.T
    if offsets is not None:
        ids = list(objective.vocab.ids) if ids is None else ids
        logits = logits.index_add(1, torch.tensor(ids), (hidden.to(offsets.dtype) @ offsets.T).to(logits.dtype))
    return objective(as_the_model(logits, **after), targets, slots)


def as_the_model(logits, bias_V=None, logit_scale=1.0, softcap=None):
    """What Gemma, Cohere, Granite and Phi make of their head's products."""
    logits = logits if bias_V is None else logits + bias_V
    logits = logits * logit_scale
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def gradients(output, inputs, factors):
    """Of the sum over terms, each with a factor of its own: what the total is, with any denominators."""
    loss = sum(f * t.sum for f, t in zip(factors, output.terms.values(), strict=False))
    return torch.autograd.grad(loss, [x for x in inputs if x is not None and x.requires_grad], retain_graph=True)


VOCAB = CoordVocab(30, CoordGrid(40, 40))
V = 90
EVERYTHING = ObjectiveConfig(coord_ce_weight=1.0, soft_ce_weight=1.0, w1_weight=1.0, gate_weight=1.0, box_weight=1.0)
CONFIGS = {
    "soft": ObjectiveConfig.soft(),
    "soft, warmer": ObjectiveConfig.soft(temperature=2.0),
    "a": ObjectiveConfig.group_a(),
    "b": ObjectiveConfig.group_b(),
    "c": ObjectiveConfig.group_c(),
    "everything": EVERYTHING,
    "everything, colder": EVERYTHING.model_copy(update={"temperature": 0.5}),
}
by_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


class Largest(TorchDispatchMode):
    """Records the largest output, in elements, of the operations whose output meets a condition."""

    def __init__(self, condition):
        super().__init__()
        self.condition, self.elements = condition, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor) and self.condition(x):
                self.elements = max(self.elements, x.numel())
        return out


def both(config, hidden, weight, targets, slots, offsets=None):
    objective = CoordObjective(config, VOCAB)
    found = objective.fused(hidden, weight, targets, slots, offsets, chunk_rows=7)
    return found, readable(objective, hidden, weight, targets, slots, offsets)
