"""Objects that are no boxes: their rows, L1 of every coordinate, and the boxes around them."""

import math
from dataclasses import replace

import pytest
import torch

from coord_codec import GEOMETRIES, CoordGrid, CoordVocab, Geometry, find_layout, register_geometry
from coord_losses import CoordObjective, CoordRows, ObjectiveConfig, ObjectSlots, generalized_iou
from coord_losses.terms.shape import boxes_of_shapes, shape_giou_per_object

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


def test_shape_gradients_reach_every_coordinate_and_are_right():
    labels, slots = batch_of("polygon", TRIANGLE, SQUARE)
    logits = logits_for(labels)
    objective = CoordObjective(ObjectiveConfig(text_weight=0, box_weight=1.0, shape_boxes=True), VOCAB)

    def loss(x):
        return objective(x, labels[0, 1:], slots).terms["box"].sum

    assert torch.autograd.gradcheck(loss, logits.requires_grad_(), fast_mode=True)
    loss(logits).backward()
    touched = logits.grad.abs().sum(1).nonzero()[:, 0]
    assert touched.tolist() == slots.coords.rows_P.tolist()


def test_matching_refuses_shapes():
    labels, slots = batch_of("polygon", TRIANGLE)
    objective = CoordObjective(ObjectiveConfig.group_b(matching="hungarian", shape_boxes=True), VOCAB)
    with pytest.raises(ValueError, match="pairs boxes"):
        _ = objective(logits_for(labels), labels[0, 1:], slots).total()


class Ring(Geometry):
    """Five numbers, of which three are neither x nor y: centre, two radii along the axes, the angle of a gem."""

    name, about = "ring", "x, y, radius along x, radius along y, angle of its gem"
    least = most = 5
    numbers = ("x", "y", "length", "length", "angle")
    keys = ("ring", "ring_2d")
    example = (0.5, 0.6, 0.2, 0.1, 0.96)

    def arrange(self, coordinates):
        self.check_count(coordinates)
        return coordinates

    def from_box(self, bbox):
        return None

    def outline(self, coordinates):
        x1, y1, x2, y2 = self.box_of(coordinates)
        return (x1, y1), (x2, y2)

    def box_of(self, numbers, lib=math):
        x, y, across, down, _ = numbers
        return x - across, y - down, x + across, y + down


@pytest.fixture
def ring():
    register_geometry(Ring())
    yield "ring"
    GEOMETRIES.remove("ring")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("with_boxes", [False, True])
@pytest.mark.parametrize("name", [*(row.name for row in GEOMETRIES.values() if not row.is_box), "ring"])
def test_box_loss_of_every_geometry_is_four_times_mean_l1_and_giou_around(name, with_boxes, fused, ring):
    kind = GEOMETRIES[name]
    shapes = [TRIANGLE, SQUARE] if name == "polygon" else [kind.example, tuple(1 - c for c in kind.example)]
    labels, slots = batch_of(name, *shapes)
    logits = logits_for(labels)
    config = ObjectiveConfig(box_weight=1.0, alpha_l1=2.0, beta_giou=3.0, shape_boxes=with_boxes)
    objective = CoordObjective(config, VOCAB)
    if fused:
        output = objective.fused(torch.eye(len(logits), dtype=logits.dtype), logits.T, labels[0, 1:], slots)
    else:
        output = objective(logits, labels[0, 1:], slots)
    expected = 0.0
    for coords, shape in zip(naive_expectations(logits, slots), shapes, strict=True):
        errors = [abs(float(a) - b) for a, b in zip(coords, shape, strict=True)]
        errors = [min(e, 1 - e) if kind.number_at(i) == "angle" else e for i, e in enumerate(errors)]
        expected += 2 * 4 * sum(errors) / len(errors)
        if with_boxes and kind.has_extent:  # a point has no box to compare
            points = [c.item() for c in coords]
            around = Ring.to_box(kind, points) if not kind.has_points else (
                min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])
            )  # fmt: skip
            boxes = (torch.tensor([box], dtype=torch.float64) for box in (around, kind.to_box(shape)))
            expected += 3 * (1 - generalized_iou(*boxes)[0])
    assert output.terms["box"].count == 2
    assert output.terms["box"].sum.item() == pytest.approx(float(expected), rel=1e-6)


def test_five_numbers_have_slots_gradients_and_the_rows_of_their_centre(ring):
    labels, slots = batch_of(ring, Ring.example, (0.3, 0.3, 0.1, 0.2, 0.1))
    assert (labels[0, 1:][slots.rows_M4] - 10).tolist() == [[50, 60, 50, 60], [30, 30, 30, 30]]
    assert slots.boxes_M4.tolist() == [pytest.approx((0.3, 0.5, 0.7, 0.7)), pytest.approx((0.2, 0.1, 0.4, 0.5))]
    assert slots.coords.is_x_P.tolist() == [True, False, False, False, False] * 2
    assert slots.coords.is_angle_P.tolist() == [False, False, False, False, True] * 2
    logits = logits_for(labels).requires_grad_()
    objective = CoordObjective(ObjectiveConfig(text_weight=0, box_weight=1.0, shape_boxes=True), VOCAB)
    assert torch.autograd.gradcheck(
        lambda x: objective(x, labels[0, 1:], slots).terms["box"].sum, logits, fast_mode=True
    )


def test_geometry_brings_its_own_loss_or_none(ring):
    labels, slots = batch_of(ring, Ring.example)
    logits, targets = logits_for(labels).requires_grad_(), labels[0, 1:]
    objective = CoordObjective(ObjectiveConfig(text_weight=0, box_weight=1.0), VOCAB)
    losses = {"none": None, "own": lambda expected_P, coords, count: expected_P.view(count, 5).sum(1), "wrong": "l9"}
    found = {}
    for name, loss in losses.items():
        own = type(name, (Ring,), {"loss": loss})()
        found[name] = replace(slots, coords=replace(slots.coords, geometry=own))
    term = objective(logits, targets, found["none"]).terms["box"]
    term.sum.backward()
    assert (term.sum.item(), term.count.item(), logits.grad.abs().sum().item()) == (0, 1, 0)
    own = objective(logits, targets, found["own"]).terms["box"].sum
    assert own.item() == pytest.approx(sum(naive_expectations(logits, slots)[0]).item())
    with pytest.raises(ValueError, match=r"geometry ring: loss: expected l1, .*'l9'"):
        objective(logits, targets, found["wrong"])


def test_shapes_of_any_length_that_are_no_points_have_boxes(ring):
    class Beads(Ring):
        most = 10

    coords = CoordRows(torch.arange(15), torch.zeros(15), torch.tensor([0] * 5 + [1] * 10), Beads())
    expected_P = torch.tensor([*Ring.example, 0.3, 0.3, 0.1, 0.2, 0.1, 0, 0, 0, 0, 0])
    Beads.box_of = lambda self, numbers, lib=None: Ring.box_of(self, numbers[:5])
    assert boxes_of_shapes(expected_P, coords, 2).tolist() == [
        pytest.approx((0.3, 0.5, 0.7, 0.7)),
        pytest.approx((0.2, 0.1, 0.4, 0.5)),
    ]


def test_shapes_whose_box_has_no_area_have_no_giou():
    """A point, an upright and a level line: nothing that is predicted overlaps them."""
    flat = [(0.2, 0.2, 0.2, 0.2), (0.2, 0.2, 0.2, 0.6), (0.2, 0.2, 0.6, 0.2)]
    boxes = torch.tensor([*flat, (0.2, 0.2, 0.6, 0.6)])
    predicted = torch.tensor([(0.1, 0.1, 0.5, 0.4)] * len(boxes))
    found = shape_giou_per_object(predicted, boxes)
    torch.testing.assert_close(found[:3], torch.zeros(3), rtol=0, atol=0)
    torch.testing.assert_close(found[3:], 1 - generalized_iou(predicted[3:], boxes[3:]))
