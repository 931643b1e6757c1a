"""Rewards against naive references, and against answers that would rather be rewarded than right."""

from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from coco_builder import iou

from coord_codec import CoordGrid, InputError, Instance, Object, encode_target
from coord_eval import AnswerSettings, LabelSettings, ReportSettings, parse_answer, score
from coord_eval.rewards import REWARDS, Reward, box_reward, register_reward

THRESHOLDS = [0.5 + 0.05 * k for k in range(10)]
LABELS = ("cat", "dog", "red car")
CAT = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}
GUIDE = Path(__file__).parents[4] / "docs/guides/rewards.md"


def text_of(objects):
    """The answer, in the marker family `obj`; unlike `encode_target` it writes whatever it is told."""
    return "".join(
        f"<obj_start>{label}{''.join(f'<|coord_{round(1000 * c):d}|>' for c in box)}<obj_end>" for label, box in objects
    )


def record(objects):
    return [{"desc": label, "bbox": box} for label, box in objects]


def reward(objects_or_text, truth, kind="f1"):
    text = objects_or_text if isinstance(objects_or_text, str) else text_of(objects_or_text)
    return box_reward([text], [record(truth)], kind, format="obj")[0]


def draw(rng, count, least=0.1, most=0.5):
    """Random objects on the grid of the answers; one covers at most a quarter of the image."""
    sizes = rng.integers(1000 * least, 1000 * most, (count, 2))
    corners = (rng.random((count, 2)) * (999 - sizes)).astype(int)
    boxes = np.concatenate([corners, corners + sizes], axis=1) / 1000
    return [(LABELS[rng.integers(len(LABELS))], box.tolist()) for box in boxes]


def moved(rng, objects, share):
    """The same objects, each corner moved by up to a share of the sides."""
    result = []
    for label, (x1, y1, x2, y2) in objects:
        shift = rng.uniform(-share, share, 4) * [x2 - x1, y2 - y1, x2 - x1, y2 - y1]
        result.append((label, np.clip(np.array([x1, y1, x2, y2]) + shift, 0, 0.999).tolist()))
    return result


# Naive references


def all_pairings(boxes, objects):
    """Every way of pairing boxes with objects one to one, as sorted lists of IoUs."""
    for size in range(min(len(boxes), len(objects)) + 1):
        for chosen in combinations(range(len(boxes)), size):
            for partners in permutations(range(len(objects)), size):
                values = [
                    iou(boxes[b][1], objects[n][1]) if boxes[b][0] == objects[n][0] else 0.0
                    for b, n in zip(chosen, partners, strict=True)
                ]
                yield sorted(values, reverse=True)


def best_pairing(boxes, objects):
    """The pairing with the highest IoU, among those the one with the highest second, and so on."""
    return max(all_pairings(boxes, objects))


def average_precision_over_orders(hits, boxes, objects):
    values = []
    for order in permutations([True] * hits + [False] * (boxes - hits)):
        precisions = [sum(order[: r + 1]) / (r + 1) for r, hit in enumerate(order) if hit]
        values.append(sum(precisions) / objects)
    return sum(values) / len(values)


def naive(kind, boxes, objects):
    pairs, total = best_pairing(boxes, objects), len(boxes) + len(objects)
    if not total:
        return 1.0
    if kind == "iou":
        return 2 * sum(pairs) / total
    if kind == "count":
        pairs_of_counts = [[sum(label == name for label, _ in of) for of in (boxes, objects)] for name in LABELS]
        return sum(map(min, pairs_of_counts)) / sum(map(max, pairs_of_counts))
    values = []
    for t in THRESHOLDS:
        hits = sum(value >= t for value in pairs)
        values.append(
            {
                "f1": 2 * hits / total,
                "recall": 5 * hits / (4 * len(objects) + len(boxes)),
                "ap": average_precision_over_orders(hits, len(boxes), len(objects)) if objects else 0.0,
            }[kind]
        )
    return sum(values) / len(values)


@pytest.mark.parametrize("kind", ["f1", "recall", "iou", "ap", "count"])
def test_value_is_that_of_the_best_of_all_pairings(kind):
    rng = np.random.default_rng(0)
    seen = set()
    for case in range(60):
        truth = draw(rng, case % 5)
        answer = moved(rng, truth, 0.2)[: rng.integers(5)] + draw(rng, rng.integers(3))
        written = [(o.desc, o.box) for o in parse_answer(text_of(answer), "obj")]
        value = reward(answer, truth, kind)
        assert value == pytest.approx(naive(kind, written, truth)), (answer, truth)
        seen.add(round(value, 2))
    assert len(seen) > 8, "the cases say little"


def test_f1_is_that_of_score_for_one_image():
    rng = np.random.default_rng(1)
    for _ in range(5):
        truth = draw(rng, 4)
        answer = moved(rng, truth, 0.15)[1:]
        image = Instance(image="a.png", image_id=1, width=100, height=100, objects=record(truth))
        evaluation = score(
            [image],
            [{"image_id": 1, "text": text_of(answer)}],
            answers=AnswerSettings(format="obj"),
            report=ReportSettings(diagnose=False),
        )
        assert reward(answer, truth) == pytest.approx(evaluation.detection["0.5:0.95"]["f1"])


# Answers that would rather be rewarded than right


def cheats(rng, honest, truth):
    """Answers by name that know the labels of the image, and even the boxes of the honest answer."""
    labels = sorted({label for label, _ in truth})
    first = honest[:1]
    for name in labels:
        yield "one huge box", text_of([(name, (0, 0, 0.999, 0.999))])
    for k in (2, 3, 6, 10):
        cells = [(x / k, y / k, (x + 1) / k - 0.001, (y + 1) / k - 0.001) for x in range(k) for y in range(k)]
        yield "a grid of boxes", text_of([(name, cell) for name in labels for cell in cells])
    yield "repeats", text_of(honest) * 2
    if len(truth) > 1:
        yield "repeats", text_of(first) * len(truth)
    yield "repeats", text_of(honest + first * (len(truth) - len(honest) + 1))
    yield "nearly repeats", text_of(honest + moved(rng, honest, 0.02))
    yield "the empty answer", ""
    yield "the empty answer", "[]"
    if len(honest) > 1:
        yield "one sure box", text_of(first)
    yield "hundreds of boxes", text_of(draw(rng, 300))
    yield "hundreds of boxes", text_of(honest + draw(rng, 200))
    yield "labels glued together", text_of([(" ".join(LABELS), box) for _, box in honest])
    yield "labels glued together", text_of([(",".join(LABELS), box) for _, box in honest])
    yield "every label for every box", text_of([(name, box) for _, box in honest for name in LABELS])
    whole = text_of(honest)
    yield "broken text", whole.replace("<obj_end>", "")
    yield "broken text", whole.replace("<obj_start>", "<obj_start><obj_start>")
    yield "broken text", whole[: len(whole) * 2 // 3]
    yield "broken text", whole + "<obj_start>cat<|coord_1|><|coord_2|>" * 30
    yield "broken text", " or ".join([whole, '[{"bbox_2d": [0, 0, 999, 999], "label": "cat"}]'])
    yield "broken text", "I am sure. " + whole
    wrong = text_of(draw(rng, 2))
    for between in (
        "<think>no</think>",
        "\nFinal answer:\n",
        "<|im_end|>\n<|im_start|>assistant\n",
        "</think></think>",
    ):
        yield "two answers", f"<think>hm</think>{wrong}{between}{whole}"


def rewards_of_cheats(kind, misses):
    """Rewards of the honest answer and of each cheat, over random images.

    The honest answer has the objects of the image, each corner up to 4 % of the sides off; with `misses` it lacks every
    fourth object.
    """
    rng = np.random.default_rng(2)
    for case in range(16):
        truth = draw(rng, 1 + case % 8)
        honest = moved(rng, truth, 0.04)[: len(truth) - (len(truth) // 4 if misses else 0)]
        listed = [("honest", text_of(honest)), *cheats(rng, honest, truth)]
        values = box_reward([text for _, text in listed], [record(truth)] * len(listed), kind, format="obj")
        yield values[0], [(name, value) for (name, _), value in zip(listed[1:], values[1:], strict=True)]


@pytest.mark.parametrize("kind", [row.name for row in REWARDS.values() if row.sees_boxes], ids=str)
def test_no_cheat_has_more_than_the_honest_answer(kind):
    for honest, others in rewards_of_cheats(kind, misses=True):
        for name, value in others:
            assert value <= honest + 1e-12 if name == "broken text" else value < honest, name


@pytest.mark.slow
@pytest.mark.parametrize("kind", [row.name for row in REWARDS.values() if not row.sees_boxes], ids=str)
def test_no_cheat_has_more_of_a_kind_that_sees_no_boxes_than_an_answer_with_all_objects(kind):
    for honest, others in rewards_of_cheats(kind, misses=False):
        assert honest == 1
        assert all(0 <= value <= 1 for _, value in others)


@pytest.mark.slow
def test_no_cheat_gains_by_what_sees_no_boxes_as_a_small_part():
    mixture = {"f1": 0.8, "format": 0.1, "duplicates": 0.1}
    for honest, others in rewards_of_cheats(mixture, misses=True):
        assert all(value < honest for name, value in others if name != "broken text")


def test_count_pays_for_boxes_anywhere_which_is_why_it_is_no_reward_alone():
    """The guide says so: an honest answer that misses objects has less than one that is padded with repeats."""
    truth = draw(np.random.default_rng(3), 8)
    honest, padded = text_of(truth[:6]), text_of(truth[:6] + truth[:1] * 2)
    assert reward(padded, [("cat", box) for _, box in truth], "f1") < 1
    one_label = [("cat", box) for _, box in truth]
    assert reward(text_of(one_label[:6] + one_label[:1] * 2), one_label, "count") == 1
    assert reward(text_of(one_label[:6]), one_label, "count") == 0.75 and honest != padded


# What an answer is made of


def test_format_counts_complete_objects_among_the_pieces():
    right = text_of([("cat", CAT["bbox"])])
    cases = {
        right: 1,
        "": 1,
        right.replace("<obj_end>", ""): 0,
        right + "<obj_start>cat<|coord_1|>": 1 / 2,
        right + " and more": 1 / 2,
        right + "<|im_end|>\n": 1,
        "nothing of the kind": 0,
        right.replace("<|coord_100|>", "<|coord_700|>"): 0,  # swapped corners are repaired
    }
    for text, value in cases.items():
        assert reward(text, [("cat", CAT["bbox"])], "format") == pytest.approx(value), text
    assert reward(right + "<obj_start>cat<|coord_1|>", [("cat", CAT["bbox"])]) == pytest.approx(2 / 3), "dropped"


def test_second_box_of_an_object_and_a_repeated_false_one_are_duplicates():
    near, far = ("cat", [0.11, 0.2, 0.5, 0.6]), ("dog", [0.7, 0.7, 0.9, 0.9])
    answer = [("cat", CAT["bbox"]), near, far, far]
    (found,) = box_reward([text_of(answer)], [[CAT]], {"duplicates": 1, "f1": 3}, parts=True, format="obj")
    assert found.parts == {"duplicates": 0.5, "f1": pytest.approx(0.4)}
    assert found.value == pytest.approx(0.425)
    assert (found.objects, found.boxes, found.hits, found.dropped, found.duplicates) == (1, 4, 1, 0, 2)


def test_two_true_objects_at_one_place_are_no_duplicates():
    truth = [("cat", CAT["bbox"])] * 2
    assert reward(truth, truth, "duplicates") == reward(truth, truth, "f1") == 1


def test_no_objects_and_no_boxes_is_right():
    for kind in REWARDS:
        assert reward("", [], kind) == 1
        assert REWARDS[kind].sees_boxes is False or reward([("cat", CAT["bbox"])], [], kind) == 0


def test_crowd_region_is_neither_hit_nor_miss():
    truth = [CAT, {"desc": "dog", "bbox": [0.5, 0.5, 1.0, 1.0], "iscrowd": True}]
    answer = text_of([("cat", CAT["bbox"]), ("dog", [0.6, 0.6, 0.7, 0.7])])
    (found,) = box_reward([answer], [truth], dict.fromkeys(("f1", "iou", "ap", "count"), 1), format="obj", parts=True)
    assert found.parts == pytest.approx(dict.fromkeys(found.parts, 1))
    assert (found.objects, found.boxes) == (1, 2)


WHOLE, HALF, LESS = [0, 0, 0.4, 0.4], [0, 0, 0.2, 0.4], [0, 0, 0.199, 0.4]
ALONE = [0.5, 0.5, 0.6, 0.6]


@pytest.mark.parametrize(
    ("second", "crowd", "expected"),
    [
        (ALONE, [0.5, 0.5, 0.55, 0.6], {"iou": 1, "count": 1, "duplicates": 1}),  # half of it in the region
        (ALONE, [0.5, 0.5, 0.549, 0.6], {"iou": 2 / 3, "count": 1 / 2, "duplicates": 1}),
        (HALF, None, {"iou": 2 / 3, "count": 1 / 2, "duplicates": 1 / 2}),  # an IoU of .5 with an object that is found
        (LESS, None, {"iou": 2 / 3, "count": 1 / 2, "duplicates": 1}),
        (HALF, [0, 0, 0.1, 0.4], {"iou": 1, "count": 1, "duplicates": 1}),  # a duplicate inside a region is none
        (HALF, [0, 0, 0.099, 0.4], {"iou": 2 / 3, "count": 1 / 2, "duplicates": 1 / 2}),
    ],
)
def test_second_box_at_the_borders_of_duplicates_and_crowd_regions(second, crowd, expected):
    """Numbers of the grid, so that shares and IoU of a half are exact."""
    truth = [{"desc": "cat", "bbox": WHOLE}, {"desc": "cat", "bbox": crowd or [0.9, 0.9, 1, 1], "iscrowd": True}]
    (found,) = box_reward(
        [text_of([("cat", WHOLE), ("cat", second)])], [truth], dict.fromkeys(expected, 1), format="obj", parts=True
    )
    assert found.parts == pytest.approx(expected)


@pytest.mark.parametrize(("box", "f1"), [(HALF, 0.1), (LESS, 0.0)])
def test_hit_at_the_border_of_the_first_threshold(box, f1):
    assert reward([("cat", box)], [("cat", WHOLE)]) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (encode_target(Instance(image="a", objects=[CAT])), {}),
        ('[{"bbox_2d": [100, 200, 500, 600], "label": "cat"}]', {"scale": 1000}),
        ('[{"bbox_2d": [20, 20, 100, 60], "label": "Cat"}]', {"scale": "pixels", "image_sizes": [(200, 100)]}),
        ("<ref>cat</ref><box>(100,200),(500,600)</box>", {"format": "auto"}),
    ],
)
def test_every_answer_format_is_rewarded(text, options):
    assert box_reward([text], [[CAT]], **options) == [1.0]
    assert box_reward([text], [text], **options) == [1.0], "the target text as its truth"


def test_one_target_text_of_images_of_two_sizes_is_read_in_each():
    text = '[{"bbox_2d": [20, 20, 150, 90], "label": "cat"}]'  # beyond the smaller image
    with pytest.raises(InputError, match=r"truths\[1\]"):
        box_reward([text] * 2, [text] * 2, scale="pixels", image_sizes=[(200, 100), (100, 100)])
    assert box_reward([text] * 2, [text] * 2, scale="pixels", image_sizes=[(200, 100), (160, 90)]) == [1.0] * 2


def test_truth_as_record_instance_objects_or_row_of_a_table():
    instance = Instance(image="a.png", objects=[CAT])
    truths = [instance, {"objects": [CAT]}, [CAT], [Object(**CAT)], [{**CAT, "area": None}]]
    texts = [text_of([("cat", CAT["bbox"])])] * len(truths)
    assert box_reward(texts, truths) == [1.0] * len(truths)


def test_no_answer_affects_another():
    rng = np.random.default_rng(4)
    truths = [draw(rng, count) for count in (0, 1, 3, 5)]
    texts = [text_of(moved(rng, truth, 0.1) + draw(rng, 1)) for truth in truths]
    texts[1] = '[{"bbox_2d": [100, 200, 500, 600], "label": "POLISH"}]'
    truths[1], truths[2] = [("Polish", CAT["bbox"])], [("polish", CAT["bbox"])]
    for kind in REWARDS:
        together = box_reward(texts, [record(truth) for truth in truths], kind)
        alone = [box_reward([text], [record(truth)], kind)[0] for text, truth in zip(texts, truths, strict=True)]
        assert together == alone


@pytest.mark.parametrize(
    ("answers", "truths", "kind", "message"),
    [
        (["a", "b"], [[CAT]], "f1", "expected one truth for each answer, found 2 answers, 1 truth"),
        (["a"], [[CAT]], "f2", "expected one of f1, recall, iou, ap, format, duplicates, count, found 'f2'"),
        (["a"], [[CAT]], {"f1": 0}, "reward f1: expected a weight above 0"),
        (["a"], [[CAT]], {}, "found none"),
        ([None], [[CAT]], "f1", r"answers\[0\]: expected text, found NoneType"),
        (["a"], ["<obj_start>cat<|coord_1|>"], "f1", r"truths\[0\]: .* cannot be read whole \(truncated\)"),
        (["a"], [[{"desc": "cat", "bbox": [1, 2, 3, 4]}]], "f1", r"truths\[0\]: \[0\].*\[0, 1\]"),
        (["a"], [[{"desc": "cat"}]], "f1", r"truths\[0\]: \[0\]"),
        (["a"], [7], "f1", r"truths\[0\]: expected a target text, a record or a list of objects, found int"),
    ],
)
def test_mistakes_are_named(answers, truths, kind, message):
    with pytest.raises(InputError, match=message):
        box_reward(answers, truths, kind)


def test_row_of_ones_own_is_a_kind_like_any_other():
    register_reward(Reward(name="brief", documentation="", partial="", measure=lambda j: 1.0 / (1 + j.stated_IT[:, 0])))
    try:
        assert reward([("cat", CAT["bbox"])], [("cat", CAT["bbox"])], {"brief": 1, "f1": 1}) == 0.75
        with pytest.raises(InputError, match="one of this name already"):
            register_reward(Reward(name="brief", documentation="another", partial="", measure=len))
    finally:
        REWARDS.remove("brief")
    with pytest.raises(InputError, match="a built-in"):
        REWARDS.remove("f1")
    register_reward(Reward(name="wrong", documentation="", partial="", measure=lambda judged: judged.objects_I * 2.0))
    try:
        with pytest.raises(InputError, match=r"reward wrong: expected a value in \[0, 1\]"):
            box_reward(["", ""], [[CAT], [CAT]], "wrong")
    finally:
        REWARDS.remove("wrong")


def test_pieces_that_were_dropped_cost_as_much_as_boxes_of_no_object():
    right, broken = text_of([("cat", CAT["bbox"])]), "<obj_start>cat<|coord_1|>"
    expected = {
        "f1": 2 / 3,
        "recall": 5 / 6,
        "iou": 2 / 3,
        "count": 1 / 2,
        "format": 1 / 2,
        "duplicates": 1,
        "ap": 0.75,
    }
    (found,) = box_reward([right + broken], [[CAT]], dict.fromkeys(expected, 1), parts=True, format="obj")
    assert found.parts == pytest.approx(expected) and (found.boxes, found.dropped) == (1, 1)


def test_the_same_boxes_of_two_answers_or_labels_are_no_repeats():
    far = [0.7, 0.7, 0.9, 0.9]
    texts = [text_of([("dog", far)]), text_of([("dog", far)]), text_of([("dog", far), ("cow", far)])]
    found = box_reward(texts, [[CAT]] * 3, {"duplicates": 1}, parts=True, format="obj")
    assert [row.duplicates for row in found] == [0, 0, 0]


def test_a_box_that_touches_its_object_in_a_crowd_region_counts_with_its_iou():
    """It is a pair below .5: no miss in the region, so that it is stated, and its IoU counts."""
    truth = [{"desc": "cat", "bbox": WHOLE}, {"desc": "cat", "bbox": [0, 0, 1, 1], "iscrowd": True}]
    (found,) = box_reward(
        [text_of([("cat", [0, 0, 0.1, 0.4])])], [truth], {"iou": 1, "f1": 1}, parts=True, format="obj"
    )
    assert found.parts == pytest.approx({"iou": 2 * 0.25 / 2, "f1": 0})


def test_weights_are_relative_and_settings_are_passed_on():
    answer = text_of([("kitty", CAT["bbox"])])
    synonyms = LabelSettings(synonyms={"cat": ["kitty"], "dog": ["kitty"]})  # of a name that the image has not
    assert box_reward([answer], [[CAT]], format="obj") == [0.0]
    for kind in ("f1", {"f1": 30}, {"f1": 0.25, "iou": 0.75}):
        assert box_reward([answer], [[CAT]], kind, format="obj", labels=synonyms) == [1.0]
    tokens = text_of([("cat", [0.01, 0.02, 0.05, 0.06])])
    assert box_reward([tokens], [[CAT]], format="obj", grid=CoordGrid(100, 100)) == [1.0]
    for weight in (float("nan"), float("inf"), -1):
        with pytest.raises(InputError, match="reward f1: expected a weight above 0"):
            box_reward([answer], [[CAT]], {"f1": weight})
    whole = '[{"bbox_2d": [100, 200, 500, 600], "label": "cat"}, {"bbox_2d": [1, 2'
    with pytest.raises(InputError, match="cannot be read whole"):
        box_reward(["a"], [whole], scale=1000)


def test_parts_tell_hits_at_half_of_an_iou():
    truth = [("cat", WHOLE), ("dog", ALONE)]
    (found,) = box_reward([text_of([("cat", HALF), ("dog", ALONE)])], [record(truth)], parts=True, format="obj")
    assert (found.objects, found.boxes, found.hits, found.duplicates) == (2, 2, 2, 0)


@pytest.mark.parametrize("kind", ["f1", "recall", "iou", "ap"])
def test_kinds_that_see_boxes_are_no_reward_for_boxes_anywhere(kind):
    assert [row.name for row in REWARDS.values() if not row.sees_boxes] == ["format", "duplicates", "count"]
    assert reward([("cat", ALONE)], [("cat", WHOLE)], kind) == 0
