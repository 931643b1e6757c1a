"""Set matching: pairs of least cost, and a box loss that does not depend on the order of the ground truth."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch

from coord_codec import CoordGrid, CoordVocab, find_layout
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots, generalized_iou, hungarian_pairs

VOCAB = CoordVocab(first_id=10, grid=CoordGrid(bins=50, scale=50))


def random_boxes(count, seed):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 2, 2, generator=generator).sort(dim=1).values
    return corners.flatten(1)


def naive_cost(predicted, box, said, label, alpha, beta):
    """The cost of one pair in plain Python."""
    x1, y1, x2, y2 = predicted
    a1, b1, a2, b2 = box
    l1 = abs(x1 - a1) + abs(y1 - b1) + abs(x2 - a2) + abs(y2 - b2)
    inner = max(min(x2, a2) - max(x1, a1), 0) * max(min(y2, b2) - max(y1, b1), 0)
    union = (x2 - x1) * (y2 - y1) + (a2 - a1) * (b2 - b1) - inner
    hull = (max(x2, a2) - min(x1, a1)) * (max(y2, b2) - min(y1, b1))
    return alpha * l1 + beta * (1 - inner / union + (hull - union) / hull) + (said != label)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.2, 3.0)])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_pairs_have_the_least_cost_of_all_permutations(count, weights):
    for seed in range(20):
        predicted, boxes = random_boxes(count, seed).double(), random_boxes(count, 99 + seed).double()
        generator = torch.Generator().manual_seed(seed)
        said, label = torch.randint(0, 2, (2, count), generator=generator)
        sums = {
            order: sum(
                naive_cost(predicted[i].tolist(), boxes[j].tolist(), int(said[i]), int(label[j]), *weights)
                for i, j in enumerate(order)
            )
            for order in permutations(range(count))
        }
        pairs = hungarian_pairs(predicted, boxes, torch.zeros(count), said, label, *weights)
        assert sums[tuple(pairs.tolist())] == pytest.approx(min(sums.values()), abs=1e-9)


def test_pairs_stay_within_their_image():
    boxes = random_boxes(4, 1)
    image = torch.tensor([0, 1, 0, 1])
    predicted = boxes[[1, 0, 3, 2]]  # each prediction lies on a box of the other image
    pairs = hungarian_pairs(predicted, boxes, image)
    assert image[pairs].tolist() == image.tolist()


def test_label_decides_between_equal_boxes():
    same = random_boxes(1, 0).expand(2, 4)
    said, label = torch.tensor([0, 1]), torch.tensor([1, 0])
    assert hungarian_pairs(same, same, torch.zeros(2), said, label).tolist() == [1, 0]
    for one_side in ((None, label), (said, None), (None, None)):
        assert hungarian_pairs(same, same, torch.zeros(2), *one_side).tolist() == [0, 1]


def test_equal_costs_are_decided_by_the_boxes_and_not_by_their_order():
    predicted = torch.tensor([[0.25, 0.25, 0.75, 0.75]]).repeat(2, 1)
    boxes = predicted + torch.tensor([[0.125, 0, 0.125, 0], [-0.125, 0, -0.125, 0]])  # as far, on either side
    one, other = (given[hungarian_pairs(predicted, given, torch.zeros(2))] for given in (boxes, boxes.flip(0)))
    assert torch.equal(one, other)


def problem(seed=0, counts=(5, 1, 4)):
    """Logits of objects of three images, and their slots."""
    generator = torch.Generator().manual_seed(seed)
    count = sum(counts)
    rows = torch.arange(4 * count).view(count, 4)
    image = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    label = torch.randint(0, 2, (count,), generator=generator)
    boxes = random_boxes(count, seed)
    slots = ObjectSlots(rows, boxes, image, said_M=label, label_M=label)
    logits = torch.randn(4 * count, 70, generator=generator) * 4
    targets = 10 + VOCAB.grid.quantize(boxes).flatten()
    return logits, targets, slots


def permuted(slots, seed):
    """The same slots with the ground truth of each image in another order."""
    generator = torch.Generator().manual_seed(seed)
    images = ((slots.image_M == image).nonzero()[:, 0] for image in slots.image_M.unique())
    order = torch.cat([mine[torch.randperm(len(mine), generator=generator)] for mine in images])
    return replace(slots, boxes_M4=slots.boxes_M4[order], label_M=slots.label_M[order])


@pytest.mark.parametrize("fused", [False, True])
def test_box_loss_is_bitwise_equal_under_every_permutation_of_the_ground_truth(fused):
    logits, targets, slots = problem()
    # Two true boxes that are the same, where several pairings cost the same.
    slots.boxes_M4[1] = slots.boxes_M4[0]
    objective = CoordObjective(ObjectiveConfig(matching="hungarian", box_weight=1.0), VOCAB)
    hidden = torch.eye(len(logits))

    def loss_of(objects):
        leaf = logits.clone().requires_grad_()
        output = objective.fused(hidden, leaf.T, targets, objects) if fused else objective(leaf, targets, objects)
        output.terms["box"].sum.backward()
        return output.terms["box"].sum.item(), leaf.grad

    loss, gradient = loss_of(slots)
    for seed in range(30):
        again, same = loss_of(permuted(slots, seed))
        assert again == loss
        assert torch.equal(same, gradient)


def test_matched_box_loss_is_that_of_the_best_pairs_by_brute_force():
    logits, targets, slots = problem(counts=(4,))
    slots = replace(slots, said_M=None, label_M=None)
    objective = CoordObjective(ObjectiveConfig(matching="hungarian", box_weight=1.0), VOCAB)
    coords = torch.arange(50) / 50
    predicted = (logits[:, 10:60].softmax(1) * coords).sum(1).view(-1, 4)
    best = min(
        float(
            (
                (predicted - slots.boxes_M4[list(order)]).abs().sum(1)
                + 1
                - generalized_iou(predicted, slots.boxes_M4[list(order)])
            ).sum()
        )
        for order in permutations(range(4))
    )
    assert objective(logits, targets, slots).terms["box"].sum.item() == pytest.approx(best, rel=1e-5)


def test_matching_leaves_token_terms_with_the_text():
    logits, targets, slots = problem()
    config = ObjectiveConfig.mixed(box_weight=1.0)
    by_text = CoordObjective(config, VOCAB)(logits, targets, slots).terms
    matched = CoordObjective(config.model_copy(update={"matching": "hungarian"}), VOCAB)(logits, targets, slots).terms
    assert {name for name in by_text if by_text[name].sum != matched[name].sum} == {"box"}


def test_logits_that_overflowed_give_a_loss_of_nan_with_matching_too():
    logits, targets, slots = problem()
    logits[0] = torch.nan
    config = ObjectiveConfig(box_weight=1.0, matching="hungarian")
    assert CoordObjective(config, VOCAB)(logits, targets, slots).terms["box"].sum.isnan()


def test_slots_know_the_label_of_each_object():
    answer = [1, 5, 6, 11, 12, 15, 16, 2, 1, 7, 11, 12, 15, 16, 2, 1, 5, 6, 11, 12, 15, 17, 2]
    labels = torch.tensor([[-100, *answer]])
    layout = find_layout(labels[0].tolist(), VOCAB, markers=(1, 2))
    slots = ObjectSlots.from_layouts([layout], labels, [None], VOCAB)
    assert slots.said_M.tolist() == slots.label_M.tolist() == [0, 1, 0]
    json = find_layout(labels[0].tolist(), VOCAB)
    assert ObjectSlots.from_layouts([json], labels, [None], VOCAB).said_M is None or not json.objects


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.0, 2.0), (3.0, 0.0), (0.1, 0.05), (1.0, 30.0)])
def test_objective_matches_by_its_weights_and_the_labels_of_the_text(weights):
    """Of every seed by brute force: costs in plain Python, of the expected boxes."""
    alpha, beta = weights
    for seed in range(6):
        logits, targets, slots = problem(seed, counts=(4,))
        slots = permuted(slots, seed)
        config = ObjectiveConfig(matching="hungarian", box_weight=1.0, alpha_l1=alpha, beta_giou=beta)
        coords = torch.arange(50) / 50
        predicted = (logits[:, 10:60].softmax(1) * coords).sum(1).view(-1, 4)

        def cost(i, j, with_labels, predicted=predicted, slots=slots):
            names = (int(slots.said_M[i]), int(slots.label_M[j])) if with_labels else (0, 0)
            return naive_giou_cost(predicted[i], slots.boxes_M4[j], alpha, beta) + (names[0] != names[1])

        order = min(permutations(range(4)), key=lambda order: sum(cost(i, j, True) for i, j in enumerate(order)))
        expected = sum(cost(i, j, False) for i, j in enumerate(order))
        assert CoordObjective(config, VOCAB)(logits, targets, slots).terms["box"].sum.item() == pytest.approx(
            expected, rel=1e-4
        )


def naive_giou_cost(predicted, box, alpha, beta):
    """The loss of one pair, whose predicted corners may be swapped."""
    giou = generalized_iou(predicted[None].double(), box[None].double())[0]
    return float(alpha * (predicted - box).abs().sum() + beta * (1 - giou))
