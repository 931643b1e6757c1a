"""Both forms in float64 against a naive reference in extended precision, for random batches."""

import numpy as np
import pytest
import torch

from coord_codec import CoordGrid, CoordVocab, find_layout
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots, supervised_rows

BINS, FIRST, V, H = 40, 8, 60, 5
VOCAB = CoordVocab(FIRST, CoordGrid(BINS, BINS))
WEIGHTS = dict.fromkeys(("coord_ce", "soft_ce", "w1", "gate", "box"), 1.0)
LONG = np.longdouble
RELATIVE = 5e-16
"""Two roundings of float64 (2.2e-16 each), relative to the largest logit or to the sum of what is added."""

pytestmark = pytest.mark.skipif(
    np.finfo(LONG).eps > 1e-18, reason="the reference needs 80-bit floating-point numbers, which this processor lacks"
)


def batch(seed):
    """Labels of two samples with random objects, and slots made of the labels and continuous boxes."""
    rng = np.random.default_rng(seed)
    rows, boxes = [], []
    for count in (3, 2):
        corners = np.sort(rng.uniform(0, 0.97, (count, 2, 2)), axis=1).reshape(count, 4)
        ids = [-100, 5]
        for box in corners.tolist():
            ids += [1, 4, *(VOCAB.bin_to_id(VOCAB.grid.quantize(side)) for side in box), 2, 6]
        rows.append(ids + [-100] * (26 - len(ids)))
        boxes.append(corners.tolist())
    labels = torch.tensor(rows)
    layouts = [find_layout(ids, VOCAB, (1, 2)) for ids in rows]
    slots = ObjectSlots.from_layouts(layouts, labels, boxes, VOCAB)
    assert slots.fallbacks == 0
    return labels, slots, np.concatenate(boxes).astype(LONG)


def reference(logits_NV, targets_N, slots, boxes_M4):
    """Return each term's summands, in extended precision, one row at a time."""
    z_NV = logits_NV.numpy().astype(LONG)
    owner = {row: (m, side) for m, rows in enumerate(slots.rows_M4.tolist()) for side, row in enumerate(rows)}
    coords = [n for n, t in enumerate(targets_N.tolist()) if t in VOCAB.ids]
    rank = {n: i for i, n in enumerate(coords)}
    terms = {name: [] for name in ("text_ce", *WEIGHTS)}
    expected = {}
    for n, target in enumerate(targets_N.tolist()):
        z = z_NV[n]
        log_all = z.max() + np.log(np.exp(z - z.max()).sum())
        if n not in rank:
            terms["text_ce"].append(log_all - z[target])
            continue
        m, side = owner[n]
        t = target - FIRST
        c = z[FIRST : FIRST + BINS]
        log_p = c - c.max() - np.log(np.exp(c - c.max()).sum())
        p, k = np.exp(log_p), np.arange(BINS, dtype=LONG)
        q = np.where(np.abs(k - t) <= 16, np.exp(-((k - t) ** 2) / LONG(8)), LONG(0))
        q /= q.sum()
        terms["coord_ce"].append(log_all - z[target])
        terms["gate"].append(log_all - c.max() - np.log(np.exp(c - c.max()).sum()))
        terms["soft_ce"].append(-(q * log_p).sum())
        terms["w1"].append(np.abs(np.cumsum(p - q)).sum() / (BINS - 1))
        expected[m, side] = (p * k).sum() / BINS
    for m, b in enumerate(boxes_M4):
        a = np.array([expected[m, side] for side in range(4)])
        area = lambda s: max(s[2] - s[0], LONG(0)) * max(s[3] - s[1], LONG(0))  # noqa: E731
        inner = [max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])]
        union = area(a) + area(b) - area(inner)
        inverted = [max(a[0] - a[2], LONG(0)), max(a[1] - a[3], LONG(0))]
        hull = [max(a[2 + i], b[2 + i]) - min(a[i], b[i]) + inverted[i] for i in (0, 1)]
        enclosing = hull[0] * hull[1]
        giou = area(inner) / union - (enclosing - union) / enclosing
        terms["box"].append(np.abs(a - b).sum() + 1 - giou)
    return terms


@pytest.mark.parametrize("form", ["readable", "fused"])
def test_terms_in_float64_are_those_of_extended_precision(form):
    config = ObjectiveConfig(**{f"{name}_weight": weight for name, weight in WEIGHTS.items()})
    objective, worst = CoordObjective(config, VOCAB), {}
    for seed in range(20):
        labels, slots, boxes_M4 = batch(seed)
        # Logits that float64 holds exactly, however they are added up.
        rng = torch.Generator().manual_seed(seed)
        hidden = torch.randint(-8, 9, (*labels.shape, H), generator=rng).double() / 8
        weight = torch.randint(-8, 9, (V, H), generator=rng).double() / 8
        hidden_NH, targets_N = supervised_rows(hidden, labels)
        logits_NV = hidden_NH @ weight.T
        if form == "fused":
            output = objective.fused(hidden_NH, weight, targets_N, slots, chunk_rows=7)
        else:
            output = objective(logits_NV, targets_N, slots)
        for name, parts in reference(logits_NV, targets_N, slots, boxes_M4).items():
            scale = np.abs(np.array(parts)).sum() + float(logits_NV.abs().max())
            error = abs(LONG(output.terms[name].sum.item()) - sum(parts)) / scale
            worst[name] = max(worst.get(name, 0.0), float(error))
    assert max(worst.values()) < RELATIVE, worst
