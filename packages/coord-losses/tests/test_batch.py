"""Rows of supervised positions, and which of them decode which object."""

from dataclasses import replace
from itertools import combinations, pairwise
from random import Random

import pytest
import torch

from coord_codec import GEOMETRIES, CoordGrid, CoordVocab, find_layout
from coord_losses import CoordObjective, CoordRows, ObjectiveConfig, ObjectSlots, global_denominators, supervised_rows
from coord_losses.places import _increasing, agree

START, END, WORD = 1, 2, 3
VOCAB = CoordVocab(first_id=10, grid=CoordGrid(bins=100, scale=100))


def answer(*objects):
    """Token ids of START word c c c c END per object, from bins."""
    return [t for bins in objects for t in [START, WORD, *(10 + k for k in bins), END]]


def padded(*samples, left=False):
    length = max(map(len, samples))
    fill = [[-100] * (length - len(s)) for s in samples]
    return torch.tensor([[*f, *s] if left else [*s, *f] for s, f in zip(samples, fill, strict=True)])


def layouts_of(*samples):
    return [find_layout(s, VOCAB, (START, END)) for s in samples]


BINS = ([10, 20, 30, 40], [0, 5, 99, 50])
TRUE = ([0.103, 0.196, 0.3, 0.404], [0.001, 0.0549, 1.0, 0.5])


def test_supervised_rows_are_shifted_and_in_batch_order():
    labels = torch.tensor([[-100, 7, -100, 8, 9], [5, 6, -100, -100, 4]])
    x = torch.arange(10).view(2, 5)
    rows, targets = supervised_rows(x, labels)
    assert rows.tolist() == [0, 2, 3, 5, 8]
    assert targets.tolist() == [7, 8, 9, 6, 4]


def test_supervised_rows_keep_further_dimensions_and_gradients():
    x = torch.randn(1, 3, 4, requires_grad=True)
    rows, _ = supervised_rows(x, torch.tensor([[-100, -100, 3]]))
    assert rows.shape == (1, 4)
    rows.sum().backward()
    assert x.grad.sum((0, 2)).tolist() == [0, 4, 0]


def test_supervised_rows_of_nothing():
    rows, targets = supervised_rows(torch.zeros(2, 3, 4), torch.full((2, 3), -100))
    assert (rows.shape, targets.shape) == ((0, 4), (0,))


def test_supervised_rows_refuse_another_length():
    with pytest.raises(ValueError, match="must agree"):
        supervised_rows(torch.zeros(1, 4, 2), torch.zeros(1, 5, dtype=torch.long))


@pytest.mark.parametrize("left", [False, True])
def test_slots_name_the_rows_that_predict_the_coordinates(left):
    one = [-100, -100, *answer(BINS[0]), -100]
    two = [WORD, *answer(*BINS)]  # nothing precedes its first token
    labels = padded(one, two, left=left)
    starts = [labels.shape[1] - len(one), 0] if left else None
    slots = ObjectSlots.from_layouts(layouts_of(one, two), labels, [[TRUE[0]], list(TRUE)], VOCAB, starts=starts)
    _, targets = supervised_rows(torch.zeros(*labels.shape, 1), labels)
    assert (targets[slots.rows_M4] - 10).tolist() == [BINS[0], BINS[0], BINS[1]]
    assert slots.boxes_M4.tolist() == [list(TRUE[0]), list(TRUE[0]), list(TRUE[1])]
    assert slots.image_M.tolist() == [0, 1, 1]
    assert (slots.fallbacks, slots.skipped, len(slots)) == (0, 0, 3)


def test_slots_of_a_packed_row_hold_several_samples():
    one, two = [-100, *answer(BINS[1])], [-100, -100, *answer(BINS[0])]
    labels = torch.tensor([one + two])
    slots = ObjectSlots.from_layouts(
        layouts_of(one, two), labels, [None, [TRUE[0]]], VOCAB, batch_rows=[0, 0], starts=[0, len(one)]
    )
    _, targets = supervised_rows(torch.zeros(*labels.shape, 1), labels)
    assert (targets[slots.rows_M4] - 10).tolist() == [BINS[1], BINS[0]]
    assert slots.image_M.tolist() == [0, 1]
    assert slots.fallbacks == 1


@pytest.mark.parametrize("boxes", [None, [], [TRUE[1], TRUE[0]], [[0.1, 0.2, 0.3]] * 2], ids=str)
def test_slots_fall_back_on_labels_for_boxes_that_do_not_fit(boxes):
    labels = [-100, *answer(*BINS)]
    slots = ObjectSlots.from_layouts(layouts_of(labels), padded(labels), [boxes], VOCAB)
    assert slots.fallbacks == 2
    assert slots.boxes_M4.tolist() == [[k / 100 for k in bins] for bins in BINS]


@pytest.mark.parametrize(("bins_off", "fallbacks"), [(1.4, 0), (1.6, 1), (-1.4, 0), (-1.6, 1)])
def test_slots_take_a_box_within_one_and_a_half_bins_of_its_labels(bins_off, fallbacks):
    labels = [-100, *answer(BINS[0])]
    box = [0.1, 0.2, 0.3 + bins_off / 100, 0.4]
    slots = ObjectSlots.from_layouts(layouts_of(labels), padded(labels), [[box]], VOCAB)
    assert slots.fallbacks == fallbacks
    assert slots.boxes_M4[0, 2].item() == pytest.approx(0.3 if fallbacks else box[2])


MANY = ([10, 20, 30, 40], [0, 5, 99, 50], [11, 22, 33, 44], [60, 61, 70, 71])


@pytest.mark.parametrize(
    ("kept", "left"),
    [(slice(None, -3), (0, 1, 2)), (slice(3, None), (1, 2, 3)), (slice(-10, None), (3,)), (slice(7, -7), (1, 2))],
    ids=["right", "left", "left, one object", "both ends"],
)
def test_slots_of_a_sequence_cut_at_either_end_keep_true_boxes(kept, left):
    boxes = [[side / 100 + 0.003 for side in bins] for bins in MANY]
    labels = [-100, *answer(*MANY)[kept]]
    layouts = layouts_of(labels)
    slots = ObjectSlots.from_layouts(layouts, padded(labels), [boxes], VOCAB)
    assert slots.boxes_M4.tolist() == [pytest.approx(boxes[i]) for i in left]
    assert slots.fallbacks == 0


def test_slots_skip_objects_of_another_arity():
    labels = [-100, START, WORD, 10, 11, 12, 13, 14, 15, END, *answer(BINS[0])]
    slots = ObjectSlots.from_layouts(layouts_of(labels), padded(labels), [[[0.5] * 6, TRUE[0]]], VOCAB)
    assert slots.boxes_M4.tolist() == [TRUE[0]]
    assert (slots.fallbacks, slots.skipped) == (0, 1)


def test_slots_skip_unsupervised_objects():
    ids = [WORD, *answer(*BINS)]
    labels = [*ids]
    labels[3:5] = [-100, -100]  # the layout was made of the ids, the first object is masked in the labels
    slots = ObjectSlots.from_layouts(layouts_of(ids), padded(labels), [list(TRUE)], VOCAB)
    assert slots.boxes_M4.tolist() == [TRUE[1]]
    assert slots.skipped == 1


ALL = (*MANY, [30, 31, 80, 90])
TRUE_OF_ALL = [[side / 100 + 0.003 for side in bins] for bins in ALL]


@pytest.mark.parametrize("source", ["ids", "labels"])
@pytest.mark.parametrize("masked", [(1,), (0,), (4,), (1, 3), (0, 1, 2), (0, 1, 2, 3, 4)], ids=str)
def test_boxes_stay_with_their_objects_if_others_are_masked(source, masked):
    ids = [WORD, *answer(*ALL)]
    labels = [*ids]
    for i in masked:
        labels[1 + 7 * i : 8 + 7 * i] = [-100] * 7
    layouts = layouts_of(ids if source == "ids" else labels)
    slots = ObjectSlots.from_layouts(layouts, padded(labels), [TRUE_OF_ALL], VOCAB)
    kept = [i for i in range(5) if i not in masked]
    assert slots.boxes_M4.tolist() == [TRUE_OF_ALL[i] for i in kept]
    assert (slots.fallbacks, slots.skipped) == (0, 0)


@pytest.mark.parametrize("given", [range(5), range(2, 5)], ids=["for all", "for the answer"])
def test_objects_of_a_prompt_may_have_boxes_or_not(given):
    ids = [WORD, *answer(*ALL)]
    labels = [-100] * 15 + ids[15:]
    boxes = [[TRUE_OF_ALL[i] for i in given]]
    slots = ObjectSlots.from_layouts(layouts_of(ids), padded(labels), boxes, VOCAB)
    assert slots.boxes_M4.tolist() == TRUE_OF_ALL[2:]
    assert slots.fallbacks == 0


def test_a_text_that_was_cut_and_masked_keeps_order_and_agreements():
    ids = [WORD, *answer(*ALL)][8:-3]  # without the first object, and the last one is unfinished
    labels = [*ids]
    labels[7:14] = [-100] * 7  # the third object
    slots = ObjectSlots.from_layouts(layouts_of(labels), padded([-100, *labels]), [TRUE_OF_ALL], VOCAB, starts=[1])
    assert slots.boxes_M4.tolist() == [TRUE_OF_ALL[1], TRUE_OF_ALL[3]]
    assert (slots.fallbacks, slots.skipped) == (0, 1)


def test_names_of_objects_come_from_the_ids_if_descriptions_are_masked():
    ids = [WORD, *answer(BINS[0]), START, WORD + 1, *(10 + k for k in BINS[1]), END, *answer(BINS[1])]
    labels = [token if token in VOCAB.ids else -100 for token in ids]
    slots = ObjectSlots.from_layouts(layouts_of(ids), padded(labels), [None], VOCAB, ids_BT=padded(ids))
    assert slots.said_M.tolist() == [0, 1, 0]
    assert len(slots) == 3


def test_coordinates_that_belong_to_no_object_are_told():
    ids = [WORD, *answer(*BINS)]
    labels = [token if token in VOCAB.ids else -100 for token in ids]
    with pytest.warns(
        UserWarning, match=r"8 coordinate tokens .* none of them belongs to an object.*token ids instead"
    ):
        slots = ObjectSlots.from_layouts(layouts_of(labels), padded(labels), [None], VOCAB)
    assert len(slots) == 0


def test_unusable_objects_of_all_samples_are_counted():
    cut = [WORD, *answer(BINS[0])[:4]]  # unfinished
    whole = [WORD, *answer(BINS[0])]
    for order in ([cut, whole], [whole, cut], [cut, cut]):
        width = max(map(len, order))
        labels = [row + [-100] * (width - len(row)) for row in order]
        slots = ObjectSlots.from_layouts(layouts_of(*labels), padded(*labels), [None] * 2, VOCAB)
        assert slots.skipped == order.count(cut)


def test_coordinates_outside_objects_are_not_told_beside_objects_that_are_found(recwarn):
    labels = [WORD, *answer(BINS[0]), VOCAB.ids[3]]
    assert len(ObjectSlots.from_layouts(layouts_of(labels), padded(labels), [None], VOCAB)) == 1
    assert not recwarn.list


def test_slots_of_a_batch_without_objects_are_empty(recwarn):
    labels = [-100, WORD]
    slots = ObjectSlots.from_layouts(layouts_of(labels), padded(labels), [None], VOCAB)
    assert (slots.rows_M4.shape, slots.boxes_M4.shape, len(slots)) == ((0, 4), (0, 4), 0)
    assert slots.rows_M4.dtype == torch.int64
    assert not recwarn.list


def test_slots_refuse_layouts_that_do_not_fit_the_labels():
    labels = [-100, -100, *answer(BINS[0])]
    with pytest.raises(ValueError, match="starts"):
        ObjectSlots.from_layouts(layouts_of(labels[1:]), padded(labels), [None], VOCAB)
    with pytest.raises(ValueError, match="cut off"):
        ObjectSlots.from_layouts(layouts_of(labels), padded(labels[:5]), [None], VOCAB)
    with pytest.raises(ValueError, match="one entry per sample"):
        ObjectSlots.from_layouts(layouts_of(labels), padded(labels), [], VOCAB)


def test_global_denominators_count_what_the_objective_counts(monkeypatch):
    samples = [[-100, *answer(*BINS)], [-100, WORD, 12, -100, WORD], [20, 12, WORD]]  # a first label is no target
    batches = []
    for sample in samples:
        labels = padded(sample)
        batches.append((labels, ObjectSlots.from_layouts(layouts_of(sample), labels, [None], VOCAB)))
    expected = dict.fromkeys(("tokens", "coord_tokens", "objects"), 0)
    for labels, objects in batches:
        rows = supervised_rows(torch.zeros(*labels.shape, 120), labels)
        for key, count in CoordObjective(ObjectiveConfig(), VOCAB)(*rows, objects).counts.items():
            expected[key] += count
    assert global_denominators(batches, VOCAB) == expected
    assert global_denominators(batches, VOCAB, lambda x: 2 * x) == {k: 2 * v for k, v in expected.items()}
    assert global_denominators([(batches[1][0], None)], None) == {"tokens": 3, "coord_tokens": 0, "objects": 0}
    # Where ranks are known, their sum; a function that is given stands in its place.
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda x: x.mul_(3))
    assert global_denominators(batches, VOCAB) == {k: 3 * v for k, v in expected.items()}
    assert global_denominators(batches, VOCAB, lambda x: 2 * x) == {k: 2 * v for k, v in expected.items()}


def test_slots_check_shapes_and_move_together():
    for rows, boxes, image in (
        ((2, 4), (1, 4), (2,)),
        ((1, 4), (2, 4), (2,)),
        ((2, 5), (2, 4), (2,)),
        ((1, 4), (1, 4), ()),
    ):
        with pytest.raises(ValueError, match=r"\[M, 4\]"):
            ObjectSlots(torch.zeros(rows).long(), torch.zeros(boxes), torch.zeros(image).long())
    for rows, true, of in (((3,), (2,), (3,)), ((2,), (3,), (3,)), ((3,), (3,), (2,)), ((3, 1), (3, 1), (3, 1))):
        with pytest.raises(ValueError, match=r"\[P\] each"):
            CoordRows(torch.zeros(rows).long(), torch.zeros(true), torch.zeros(of).long())
    nothing = CoordRows(torch.zeros(0).long(), torch.zeros(0), torch.zeros(0).long())
    assert nothing.is_x_P.shape == nothing.is_angle_P.shape == (0,)
    three = CoordRows(torch.arange(8), torch.zeros(8), torch.tensor([0] * 2 + [3] * 4 + [4] * 2))
    assert three.is_x_P.tolist() == 4 * [True, False]
    slots = ObjectSlots(
        torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 4), torch.zeros(2, dtype=torch.long), fallbacks=1
    )
    names = torch.zeros(2, dtype=torch.long)
    coords = CoordRows(torch.arange(4), torch.rand(4), torch.tensor([0, 0, 1, 1]), GEOMETRIES["point"])
    moved = replace(slots, said_M=names, label_M=names, coords=coords).to("meta")
    parts = [*vars(moved).values(), *vars(moved.coords).values()]
    assert {part.device.type for part in parts if isinstance(part, torch.Tensor)} == {"meta"}
    assert sum(isinstance(part, torch.Tensor) for part in parts) == 8 and moved.coords.geometry is GEOMETRIES["point"]
    assert moved.fallbacks == 1


@pytest.mark.parametrize("ignored", [-100, -1, 0, 7, 20, WORD])
def test_label_that_is_ignored_is_the_one_that_is_named(ignored):
    """Also where it is a word or a coordinate, as of a model whose padding is one."""
    text = [WORD, *answer([11, 21, 31, 41], [1, 6, 99, 51])]
    plain = [7 if token == WORD and ignored != 7 else token for token in text]
    labels = torch.tensor([[*plain, ignored, ignored], [ignored, ignored, *plain]])
    rows, targets = supervised_rows(torch.arange(labels.numel()).view(labels.shape), labels, ignored)
    kept = [(b, t) for b in (0, 1) for t in range(1, labels.shape[1]) if labels[b, t] != ignored]
    assert rows.tolist() == [b * labels.shape[1] + t - 1 for b, t in kept]
    assert targets.tolist() == [int(labels[place]) for place in kept]
    layouts = [find_layout(plain, VOCAB, (START, END))] * 2
    slots = ObjectSlots.from_layouts(layouts, labels, [None] * 2, VOCAB, starts=[0, 2], ignore_index=ignored)
    assert (targets[slots.rows_M4] - 10).tolist() == [[11, 21, 31, 41], [1, 6, 99, 51]] * 2
    counts = global_denominators([(labels, slots), (labels[:1], None)], VOCAB, ignore_index=ignored)
    coords = sum(int(token) in VOCAB.ids for token in targets)
    assert counts == {
        "tokens": len(kept) + sum(b == 0 for b, _ in kept),
        "coord_tokens": coords + sum(int(labels[b, t]) in VOCAB.ids for b, t in kept if b == 0),
        "objects": 4,
    }


@pytest.mark.parametrize("masked", [(0,), (3,), (1, 2), (0, 1, 2)])
def test_object_of_which_any_coordinate_is_masked_is_skipped(masked):
    ids = [WORD, *answer(*BINS)]
    labels = [-100 if place - 3 in masked else token for place, token in enumerate(ids)]
    slots = ObjectSlots.from_layouts(layouts_of(ids), padded(labels), [list(TRUE)], VOCAB)
    assert (slots.boxes_M4.tolist(), slots.skipped, slots.fallbacks) == ([TRUE[1]], 1, 0)


def test_row_of_an_object_beyond_the_batch_is_refused():
    labels = padded([-100, *answer(BINS[0])])
    rows = supervised_rows(torch.zeros(*labels.shape, 120), labels)
    last = len(rows[1]) - 1
    for found, message in ((last + 1, "the batch has"), (-1, "the batch has"), (last, "no coordinate token")):
        slots = ObjectSlots(torch.tensor([[2, 3, 4, found]]), torch.rand(1, 4), torch.zeros(1, dtype=torch.long))
        with pytest.raises(ValueError, match=message):
            CoordObjective(ObjectiveConfig(), VOCAB)(*rows, slots)


@pytest.mark.parametrize("seed", range(12))
def test_order_that_is_kept_has_most_agreements_and_then_most_neighbours(seed):
    """Against every increasing choice; of several the one with the smallest indices, from the last on."""
    draw = Random(seed)
    for fewer, more in ((0, 3), (1, 4), (2, 2), (3, 5), (4, 7), (5, 6)):
        agreeing = {(i, j): draw.random() < draw.choice((0.1, 0.5)) for i in range(fewer) for j in range(more)}

        def worth(chosen, agreeing=agreeing):
            neighbours = sum(b == a + 1 for a, b in pairwise(chosen))
            return sum(agreeing[pair] for pair in enumerate(chosen)), neighbours

        found = _increasing(fewer, more, lambda i, j, agreeing=agreeing: agreeing[i, j])
        best = max(map(worth, combinations(range(more), fewer)))
        same = [chosen for chosen in combinations(range(more), fewer) if worth(chosen) == best]
        assert tuple(found) in same and found[-1:] == list(min(chosen[-1:] for chosen in same))


def test_labels_agree_with_boxes_by_the_scale_of_the_grid():
    """A grid may have more bins than its scale, as one whose last bin is the far side, or many more."""
    for grid in (CoordGrid(100, 100), CoordGrid(50, 100), CoordGrid(101, 100)):
        vocab = CoordVocab(10, grid)
        for off, same in ((-1.45, True), (1.45, True), (-1.55, False), (1.55, False)):
            assert agree([0.3, 0.3, 0.3 + off / grid.scale, 0.3], [0.3] * 4, vocab) is same
        assert not agree([0.3] * 3, [0.3] * 4, vocab)
