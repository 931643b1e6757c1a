"""Objects in JSON as models write it."""

import json

import pytest

from coord_codec import int_to_token
from coord_eval import parse_answer

CAT = '{"bbox_2d": [100, 200, 300, 400], "label": "cat"}'
BOX = (0.1, 0.2, 0.3, 0.4)
TOKENS = ", ".join(int_to_token(k) for k in (100, 200, 300, 400))


def reasons(answer):
    return [drop.reason for drop in answer.dropped]


@pytest.mark.parametrize(
    "text",
    [
        CAT,
        f"[{CAT}]",
        f"```json\n[\n\t{CAT}\n]\n```",
        f"```json\n[{CAT}",
        f'Here is what I see, 5" wide: [{CAT}] Anything else?',
        f"<think>A cat? {{maybe}} [1, 2]</think>\n[{CAT}]",
        f'{{"objects": [{CAT}], "count": 1}}',
        '{"label": "cat", "bbox_2d": ["100", "200", "300", "400"]}',
        '{"label": "cat", "bbox": [100.0, 2e2, 300, 400]}',
        "{'bbox_2d': [100, 200, 300, 400], 'label': 'cat'}",
        '{bbox_2d: [100, 200, 300, 400], label: "cat"}',
        '{"bbox_2d": [100, 200, 300, 400,], "label": "cat",}',
        '{"bbox_2d": [[100, 200], [300, 400]], "label": "cat"}',
        '{"desc": "cat", "bbox": [<|coord_100|>, <|coord_200|>, <|coord_300|>, <|coord_400|>]}',
        '{"desc": "cat", "bbox": ["<|coord_100|>", "<|coord_200|>", "<|coord_300|>", "<|coord_400|>"]}',
        '{"desc": "cat", "bbox": "<|coord_100|><|coord_200|><|coord_300|><|coord_400|>"}',
        '{"bbox_2d": "100, 200, 300, 400", "label": "cat"}',
        '{"bbox_2d": ["100, 200", "300, 400"], "label": "cat"}',
        '{"Label": "cat", "BBox": [100, 200, 300, 400]}',
        '{"Name": "cat", "Confidence": 90, "BoundingBox": {"Left": 100, "Top": 200, "Width": 200, "Height": 200}}',
        '{"label": "cat", "left": 100, "top": 200, "width": 200, "height": 200}',
        '{"label": "cat", "bbox": {"xmin": 100, "ymin": "200", "width": 200, "height": 200}}',
    ],
)
def test_json_spellings_of_one_object(text):
    answer = parse_answer(text)
    (item,) = answer.objects
    assert (item.desc, item.box, answer.format) == ("cat", BOX, "json")
    assert answer.dropped == ()
    assert text[slice(*item.span)].startswith("{")


def test_json_truncated_only_if_cut_off():
    for text, truncated in ((CAT, False), (f"[{CAT}", False), (CAT[:-1], True), (f'{{"objects": [{CAT}', True)):
        assert parse_answer(text).truncated is truncated
    assert parse_answer(f"[{CAT}] []").status == parse_answer(CAT).status


@pytest.mark.parametrize(
    "keys",
    [
        (
            "label desc description name category class ref text_content class_name category_name label_name object "
            "object_name phrase 标签 类别",
            '"{}": "cat", "bbox_2d": [100, 200, 300, 400]',
        ),
        ("bbox_2d bbox box bounding_box", '"label": "cat", "{}": [100, 200, 300, 400]'),
        ("poly polygon polygon_2d", '"label": "cat", "{}": [100, 200, 300, 400, 100, 400]'),
        ("point_2d points", '"label": "cat", "{}": [100, 200]'),
    ],
)
def test_json_key_names(keys):
    names, record = keys
    found = []
    for name in names.split():
        for filler in ("", ', "n": 1'):  # the one step for faultless records, and the state machine
            (item,) = parse_answer("{" + record.replace("{}", name) + filler + "}").objects
            found.append((item.desc, item.box, item.geometry, item.points, item.completeness))
    assert len(set(found)) == 1 and found[0][0] == "cat" and found[0][-1] == "complete"


def test_json_second_geometry_is_a_repair():
    text = '{"bbox_2d": [100, 200, 300, 400], "label": "cat", "point_2d": [1, 2], "bbox": "5, 6, 7, 8"}'
    (item,) = parse_answer(text).objects
    assert (item.box, item.completeness) == (BOX, "repaired")
    assert item.repairs == ("second_geometry",)  # once, however often the text needs it


SLOW_CAT = CAT.replace('"label"', '"n": 1, "label"')  # not taken in one step


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        (f'{{"label": "scene", "objects": [{CAT}]}}', []),
        (f'{{"label": "scene", "objects": [{SLOW_CAT}]}}', []),
        (f'[{{"count": 1}}, {CAT}]', []),
        (f'[{{"label": "dog"}}, {CAT}]', ["no_coordinates"]),
        (f'[{CAT}, {{"label": "dog"', ["truncated"]),
        (f'[{{"label": "dog", "bbox_2d": [1, 2, 3, null]}}, {CAT}]', ["invalid_coordinate"]),
    ],
)
def test_json_record_without_box_is_dropped_if_labelled(text, dropped):
    answer = parse_answer(text)
    assert [(o.desc, o.box) for o in answer] == [("cat", BOX)]
    assert reasons(answer) == dropped


def test_json_several_shapes_in_one_record():
    boxes = parse_answer('{"bbox_2d": [[100, 200, 300, 400], [5, 6, 7, 8]], "label": "cat"}').objects
    assert [(o.desc, o.start_index, o.bins) for o in boxes] == [
        ("cat", 0, (100, 200, 300, 400)),
        ("cat", 0, (5, 6, 7, 8)),
    ]
    points = parse_answer('{"point_2d": [[1, 2], [3, 4]], "label": "cat"}').objects
    assert [(item.geometry, item.bins) for item in points] == [("point", (1, 2)), ("point", (3, 4))]


def test_json_coordinate_tokens_outside_geometry_are_counted():
    for note in ("<|coord_5|>", '"<|coord_5|>"'):
        answer = parse_answer(f'{{"note": {note}, "bbox_2d": [{TOKENS}], "label": "cat"}}')
        (item,) = answer.objects
        assert (item.box, item.first_coord_index, answer.coord_count) == (BOX, 1, 5)


def test_json_agrees_with_the_json_library():
    objects = [
        {"label": label, "bbox_2d": [i, 2 * i, 500 + i, 600 + i]}
        for i, label in enumerate(['a "b"', "c\\d", "猫\n", "e{f}[g]", "\u2028", "ü/ö", "'", "👩‍👧"])
    ]
    for ascii_only in (True, False):
        answer = parse_answer(json.dumps(objects, ensure_ascii=ascii_only))
        assert [o.desc for o in answer] == [o["label"].strip() for o in objects]
        assert [list(o.bins) for o in answer] == [o["bbox_2d"] for o in objects]


@pytest.mark.parametrize(
    ("text", "desc", "completeness"),
    [
        ("{'label': 'it\\'s', 'bbox_2d': [100, 200, 300, 400]}", "it's", "complete"),  # as Python quotes
        ('{"bbox_2d": [100, 200, 300, 400], "label": null}', "", "repaired"),
        ('{"bbox_2d": [100, 200, 300, 400], "label": "\\ud83d"}', "\ufffd", "complete"),  # half a surrogate pair
        ('{"color": "red", "bbox_2d": [100, 200, 300, 400], "label": "cat"}', "cat", "complete"),
        ('{"bbox_2d": [100, 200, 300, 400], "color": "red", "label": "cat"}', "cat", "complete"),
        ('{"bbox_2d": [100, 200, 300, 400], "label": "cat", "color": "red"}', "cat", "complete"),
        ('{"label": "cat", "name": "dog", "bbox_2d": [100, 200, 300, 400]}', "cat", "complete"),
        (f'[{{"desc": "cat", "bbox": [{TOKENS}', "cat", "partial"),
    ],
)
def test_json_label_of_one_object(text, desc, completeness):
    assert [(o.desc, o.box, o.completeness) for o in parse_answer(text)] == [(desc, BOX, completeness)]


@pytest.mark.parametrize("arity", [n for n in range(9) if n != 4])
def test_json_wrong_arity_is_dropped(arity):
    answer = parse_answer(json.dumps([{"bbox_2d": list(range(arity)), "label": "x"}]) + CAT)
    assert [o.desc for o in answer] == ["cat"]
    assert reasons(answer) == (["wrong_arity"] if arity else [])  # an empty list says that there is no object


@pytest.mark.parametrize("bad", ["null", "NaN", "Infinity", '"left"', "1e999", "<|coord_1000|>", "<|coord_*|>"])
def test_json_invalid_number_is_dropped(bad):
    answer = parse_answer(f'[{{"bbox_2d": [1, 2, 3, {bad}], "label": "x"}}, {CAT}]')
    assert [o.desc for o in answer] == ["cat"]
    assert reasons(answer) == ["invalid_coordinate"]


def test_json_cut_anywhere_keeps_no_partial_number():
    text = f'[{CAT}, {{"bbox_2d": [111, 222, 333, 444], "label": "dog"}}]'
    for cut in range(len(text)):
        answer = parse_answer(text[:cut], "json")
        whole = text[:cut].count("}")
        assert len([o for o in answer if o.completeness == "complete"]) == whole
        for item in answer:
            assert item.bins in ((100, 200, 300, 400), (111, 222, 333, 444))
        if answer.objects and answer.objects[-1].completeness == "partial":
            assert answer.truncated


def test_json_ordinals_count_tokens_of_the_whole_text():
    a, b = int_to_token(1), int_to_token(2)
    text = f'{a}{{"desc": "x", "bbox": [{a}]}} {{"desc": "{b}", "bbox": [{a}, {a}, {b}, {b}]}}'
    answer = parse_answer(text, "json")
    assert answer.coord_count == 7
    assert answer.objects[0].coord_indices == range(3, 7)


def test_json_ordinals_of_fast_and_slow_records():
    for numbers, count in ((TOKENS, 4), ("1, 2, 3, 4", 0)):
        whole, bent = f'{{"desc": "a", "bbox": [{numbers}]}}', f'{{"id": 1, "desc": "b", "bbox": [{numbers}]}}'
        answer = parse_answer(f"[{whole}, {bent}, {whole}, {bent}]")
        assert [o.coord_indices for o in answer] == [range(n * count, (n + 1) * count) for n in range(4)]
        assert [o.start_index for o in answer] == [0, 1, 2, 3]
        assert (answer.coord_count, answer.start_count) == (4 * count, 4)


def test_json_points_and_polygons_have_a_box():
    text = '[{"point_2d": [500, 0], "label": "p"}, {"poly": [[100, 100], [300, 100], [200, 400]], "label": "t"}]'
    point, polygon = parse_answer(text).objects
    assert (point.geometry, point.points, point.box) == ("point", ((0.5, 0.0),), (0.4995, 0.0, 0.5005, 0.0005))
    assert (polygon.geometry, polygon.box) == ("polygon", (0.1, 0.1, 0.3, 0.4))
    assert polygon.points == ((0.1, 0.1), (0.3, 0.1), (0.2, 0.4))


@pytest.mark.parametrize("order", ["box first", "label first"])
@pytest.mark.parametrize("numbers", ["1, 2, 3, 4", "1.5,2, 30,4", "<|coord_1|>, <|coord_2|>, <|coord_3|>, <|coord_4|>"])
def test_json_further_key_changes_nothing(order, numbers):
    """A record with just label and box is read in one step; a further key sends it down the long way."""
    box, label = f'"bbox_2d": [{numbers}]', '"label": "red car"'
    first, second = (box, label) if order == "box first" else (label, box)
    short, long = (f"[{{{first}, {second}{more}}}]" for more in ("", ', "id": "seven"'))
    (a,), (b,) = parse_answer(short).objects, parse_answer(long).objects
    assert (a.desc, a.box, a.bins, a.coord_indices) == (b.desc, b.box, b.bins, b.coord_indices)
    assert (a.completeness, a.start_index) == (b.completeness, b.start_index)


@pytest.mark.parametrize(
    ("text", "options", "scale"),
    [
        ('[{"bbox_2d": [1, 2, 30, 40], "label": "a"}]', {"scale": 1000}, (1000, 1000)),
        ('[{"bbox_2d": [1, 2, 30, 40], "label": "a"}]', {"scale": "pixels", "image_size": (64, 48)}, (64, 48)),
        ('[{"box_2d": [1, 2, 30, 40], "label": "a"}]', {}, (1000, 1000)),
        ('[{"bbox_2d": [0.1, 0.2, 0.3, 0.4], "label": "a"}]', {}, (1, 1)),
        ("<obj_start>a<|coord_1|><|coord_2|><|coord_30|><|coord_40|><obj_end>", {}, None),
    ],
)
def test_object_keeps_its_numbers_and_what_they_were_divided_by(text, options, scale):
    (item,) = parse_answer(text, **options)
    assert item.scale == scale
    x1, y1, x2, y2 = item.numbers if item.order == "xyxy" else [item.numbers[i] for i in (1, 0, 3, 2)]
    sx, sy = scale or (1000, 1000)
    assert item.box == (x1 / sx, y1 / sy, x2 / sx, y2 / sy)
