"""Objects that are no boxes: their rows, L1 of every coordinate, and the boxes around them."""

import pytest
import torch

from coord_codec import CoordGrid, CoordVocab, find_layout
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots, generalized_iou

START, END, WORD = 1, 2, 3
VOCAB = CoordVocab(first_id=10, grid=CoordGrid(bins=100, scale=100))
TRIANGLE = (0.503, 0.1, 0.9, 0.496, 0.102, 0.5)
SQUARE = (0.2, 0.2, 0.4, 0.2, 0.4, 0.4, 0.2, 0.4)


def batch_of(geometry, *shapes):
    """Labels of one sample, and its slots."""
    ids = [-100]
    for shape in shapes:
        ids += [START, WORD, *(10 + VOCAB.grid.quantize(c) for c in shape), END]
    labels = torch.tensor([ids])
    layout = find_layout(ids, VOCAB, (START, END), geometry=geometry)
    return labels, ObjectSlots.from_layouts([layout], labels, [list(shapes)], VOCAB, geometry=geometry)


def logits_for(labels, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(labels.shape[1] - 1, 120, generator=generator, dtype=torch.float64) * 3


def naive_expectations(logits, slots):
    """Each object's expected coordinates, one softmax at a time."""
    found = {}
    for row, obj in zip(slots.coords.rows_P.tolist(), slots.coords.object_P.tolist(), strict=True):
        p = torch.softmax(logits[row, 10:110], dim=0)
        found.setdefault(obj, []).append(sum(p[k] * k / 100 for k in range(100)))
    return [torch.stack(values) for values in found.values()]


@pytest.mark.parametrize(
    ("geometry", "shapes"),
    [("polygon", (TRIANGLE, SQUARE)), ("point", ((0.25, 0.5), (0.1, 0.9))), ("oriented", (SQUARE,))],
)
def test_slots_hold_every_coordinate_and_the_box_around(geometry, shapes):
    labels, slots = batch_of(geometry, *shapes)
    assert slots.skipped == slots.fallbacks == 0
    assert slots.coords.true_P.tolist() == pytest.approx([c for shape in shapes for c in shape])
    targets = labels[0, 1:]
    bins = [VOCAB.grid.quantize(c) for shape in shapes for c in shape]
    assert (targets[slots.coords.rows_P] - 10).tolist() == bins
    expected = [(min(s[::2]), min(s[1::2]), max(s[::2]), max(s[1::2])) for s in shapes]
    assert slots.boxes_M4.tolist() == [pytest.approx(box) for box in expected]
    # The rows at the sides of the true box are those of the vertices that make it.
    assert (targets[slots.rows_M4] - 10).tolist() == [[VOCAB.grid.quantize(c) for c in box] for box in expected]


def test_slots_of_another_arity_are_skipped():
    labels, _ = batch_of("polygon", TRIANGLE)
    layout = find_layout(labels[0].tolist(), VOCAB, (START, END))
    slots = ObjectSlots.from_layouts([layout], labels, [None], VOCAB, geometry="point")
    assert (len(slots), slots.skipped) == (0, 1)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("with_boxes", [False, True])
def test_box_loss_of_shapes_is_four_times_mean_l1_and_giou_around(fused, with_boxes):
    labels, slots = batch_of("polygon", TRIANGLE, SQUARE)
    logits = logits_for(labels)
    config = ObjectiveConfig(box_weight=1.0, alpha_l1=2.0, beta_giou=3.0, shape_boxes=with_boxes)
    objective = CoordObjective(config, VOCAB)
    if fused:
        output = objective.fused(torch.eye(len(logits), dtype=logits.dtype), logits.T, labels[0, 1:], slots)
    else:
        output = objective(logits, labels[0, 1:], slots)
    expected = 0.0
    for coords, shape in zip(naive_expectations(logits, slots), (TRIANGLE, SQUARE), strict=True):
        true = torch.tensor(shape)
        expected += 2 * 4 * (coords - true).abs().mean()
        if with_boxes:
            box, around = ([c[::2].min(), c[1::2].min(), c[::2].max(), c[1::2].max()] for c in (coords, true))
            expected += 3 * (1 - generalized_iou(torch.stack(box)[None], torch.stack(around)[None].double())[0])
    assert output.terms["box"].count == 2
    assert output.terms["box"].sum.item() == pytest.approx(float(expected), rel=1e-6)


def test_shape_gradients_reach_every_coordinate_and_are_right():
    labels, slots = batch_of("polygon", TRIANGLE, SQUARE)
    logits = logits_for(labels)
    objective = CoordObjective(ObjectiveConfig(text_weight=0, box_weight=1.0, shape_boxes=True), VOCAB)

    def loss(x):
        return objective(x, labels[0, 1:], slots).terms["box"].sum

    assert torch.autograd.gradcheck(loss, logits.requires_grad_())
    loss(logits).backward()
    touched = logits.grad.abs().sum(1).nonzero()[:, 0]
    assert touched.tolist() == slots.coords.rows_P.tolist()


def test_point_has_no_box_to_compare():
    labels, slots = batch_of("point", (0.25, 0.5))
    logits = logits_for(labels)
    terms = [
        CoordObjective(ObjectiveConfig(box_weight=1.0, shape_boxes=on), VOCAB)(logits, labels[0, 1:], slots).terms[
            "box"
        ]
        for on in (False, True)
    ]
    assert terms[0].sum == terms[1].sum > 0


def test_true_coordinates_and_weights_of_shapes():
    labels, _ = batch_of("polygon", TRIANGLE, SQUARE)
    layout = find_layout(labels[0].tolist(), VOCAB, (START, END), geometry="polygon")
    weighted = ObjectSlots.from_layouts(
        [layout], labels, [[TRIANGLE, SQUARE]], VOCAB, weights=[[2.0, 0.0]], geometry="polygon"
    )
    alone = ObjectSlots.from_layouts(
        [layout], labels, [[TRIANGLE, SQUARE]], VOCAB, weights=[[1.0, 0.0]], geometry="polygon"
    )
    objective = CoordObjective(ObjectiveConfig.soft(box_weight=1.0, extra_weights={"huber": 1.0}), VOCAB)
    logits = logits_for(labels)
    double, single = (objective(logits, labels[0, 1:], s).terms for s in (weighted, alone))
    for name in ("soft_ce", "box", "huber"):
        assert double[name].sum.item() == pytest.approx(2 * single[name].sum.item())


def test_matching_refuses_shapes():
    labels, slots = batch_of("polygon", TRIANGLE)
    objective = CoordObjective(ObjectiveConfig.group_b(matching="hungarian", shape_boxes=True), VOCAB)
    with pytest.raises(ValueError, match="pairs boxes"):
        _ = objective(logits_for(labels), labels[0, 1:], slots).total()
