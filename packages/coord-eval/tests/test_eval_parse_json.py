"""The parser for JSON as models write it, and for location tokens."""

import json

import pytest

from coord_codec import CoordGrid, int_to_token
from coord_eval import parse_answer

CAT = '{"bbox_2d": [100, 200, 300, 400], "label": "cat"}'
BOX = (0.1, 0.2, 0.3, 0.4)


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
    ],
)
def test_ways_to_write_one_cat(text):
    answer = parse_answer(text)
    (item,) = answer.objects
    assert (item.desc, item.box, answer.format) == ("cat", BOX, "json")
    assert answer.dropped == ()
    assert text[slice(*item.span)].startswith("{")


def test_only_what_was_cut_off_is_truncated():
    for text, truncated in (
        (CAT, False),
        (f"[{CAT}", False),
        (CAT[:-1], True),
        (f'{{"objects": [{CAT}', True),
    ):
        assert parse_answer(text).truncated is truncated
    assert parse_answer(f"[{CAT}] []").status == parse_answer(CAT).status


@pytest.mark.parametrize(
    "keys",
    [
        (
            "label desc description name category class ref text_content",
            '"{}": "cat", "bbox_2d": [100, 200, 300, 400]',
        ),
        ("bbox_2d bbox box bounding_box", '"label": "cat", "{}": [100, 200, 300, 400]'),
        ("poly polygon polygon_2d", '"label": "cat", "{}": [100, 200, 300, 400, 100, 400]'),
        ("point_2d point", '"label": "cat", "{}": [100, 200]'),
    ],
)
def test_every_name_of_a_key(keys):
    names, record = keys
    found = []
    for name in names.split():
        for filler in ("", ', "n": 1'):  # the one step for faultless records, and the state machine
            (item,) = parse_answer("{" + record.replace("{}", name) + filler + "}").objects
            found.append((item.desc, item.box, item.geometry, item.points, item.completeness))
    assert len(set(found)) == 1 and found[0][0] == "cat" and found[0][-1] == "complete"


def test_the_first_of_two_geometries_stands_and_the_record_counts_as_repaired():
    text = '{"bbox_2d": [100, 200, 300, 400], "label": "cat", "point_2d": [1, 2], "bbox": "5, 6, 7, 8"}'
    (item,) = parse_answer(text).objects
    assert (item.box, item.completeness) == (BOX, "repaired")
    assert item.repairs == ("second_geometry", "second_geometry")


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
def test_a_record_without_a_box_is_dropped_unless_it_never_was_an_object(text, dropped):
    answer = parse_answer(text)
    assert [(o.desc, o.box) for o in answer] == [("cat", BOX)]
    assert reasons(answer) == dropped


def test_numbers_written_into_one_string_are_a_repair_and_a_list_of_strings_is_none():
    for sides, repairs in (
        ('"100, 200, 300, 400"', ("numbers_in_string",)),
        ('["100", "200", "300", "400"]', ()),
        ('["100, 200", "300, 400"]', ()),
    ):
        (item,) = parse_answer(f'{{"bbox_2d": {sides}, "label": "cat"}}').objects
        assert (item.box, item.repairs) == (BOX, repairs)


def test_several_shapes_in_one_record():
    boxes = parse_answer('{"bbox_2d": [[100, 200, 300, 400], [5, 6, 7, 8]], "label": "cat"}').objects
    assert [item.bins for item in boxes] == [(100, 200, 300, 400), (5, 6, 7, 8)]
    points = parse_answer('{"point_2d": [[1, 2], [3, 4]], "label": "cat"}').objects
    assert [(item.geometry, item.bins) for item in points] == [("point", (1, 2)), ("point", (3, 4))]


def test_records_are_numbered_alike_on_both_ways():
    answer = parse_answer(f"[{CAT}, {SLOW_CAT}, {CAT}, {SLOW_CAT}]")
    assert [item.start_index for item in answer] == [0, 1, 2, 3] and answer.start_count == 4


def test_a_quote_escaped_as_python_does():
    (item,) = parse_answer("{'label': 'it\\'s', 'bbox_2d': [100, 200, 300, 400]}").objects
    assert item.desc == "it's"


def test_coordinates_that_belong_to_no_geometry_are_counted_and_left_alone():
    sides = ", ".join(int_to_token(side) for side in (100, 200, 300, 400))
    for note in ("<|coord_5|>", '"<|coord_5|>"'):
        answer = parse_answer(f'{{"note": {note}, "bbox_2d": [{sides}], "label": "cat"}}')
        (item,) = answer.objects
        assert (item.box, item.first_coord_index, answer.coord_count) == (BOX, 1, 5)


def test_a_whole_json_answer_agrees_with_the_json_library():
    objects = [
        {"label": label, "bbox_2d": [i, 2 * i, 500 + i, 600 + i]}
        for i, label in enumerate(['a "b"', "c\\d", "猫\n", "e{f}[g]", "\u2028", "ü/ö", "'", "👩‍👧"])
    ]
    for ascii_only in (True, False):
        answer = parse_answer(json.dumps(objects, ensure_ascii=ascii_only))
        assert [o.desc for o in answer] == [o["label"].strip() for o in objects]
        assert [list(o.bins) for o in answer] == [o["bbox_2d"] for o in objects]


@pytest.mark.parametrize("text", ["[]", "```json\n[]\n```", '{"objects": []}', "There is nothing: []"])
def test_an_explicitly_empty_list_is_an_answer(text):
    assert parse_answer(text).status == "empty"


@pytest.mark.parametrize("arity", [n for n in range(9) if n != 4])
def test_another_number_of_coordinates_drops_the_object(arity):
    answer = parse_answer(json.dumps([{"bbox_2d": list(range(arity)), "label": "x"}]) + CAT)
    assert [o.desc for o in answer] == ["cat"]
    assert reasons(answer) == ["wrong_arity" if arity else "no_coordinates"]


@pytest.mark.parametrize(
    "bad", ["null", "NaN", "Infinity", '"left"', "1e999", "<|coord_1000|>", "<|coord_*|>"]
)
def test_what_is_no_number_drops_the_object(bad):
    answer = parse_answer(f'[{{"bbox_2d": [1, 2, 3, {bad}], "label": "x"}}, {CAT}]')
    assert [o.desc for o in answer] == ["cat"]
    assert reasons(answer) == ["invalid_coordinate"]


def test_cut_off_anywhere_no_number_is_half_read():
    text = f'[{CAT}, {{"bbox_2d": [111, 222, 333, 444], "label": "dog"}}]'
    for cut in range(len(text)):
        answer = parse_answer(text[:cut], "json")
        whole = text[:cut].count("}")
        assert len([o for o in answer if o.completeness == "complete"]) == whole
        for item in answer:
            assert item.bins in ((100, 200, 300, 400), (111, 222, 333, 444))
        if answer.objects and answer.objects[-1].completeness == "partial":
            assert answer.truncated


def test_four_coordinate_tokens_are_an_object_even_if_the_list_is_open():
    tokens = ", ".join(int_to_token(k) for k in (100, 200, 300, 400))
    answer = parse_answer(f'[{{"desc": "cat", "bbox": [{tokens}')
    assert [(o.desc, o.box, o.completeness) for o in answer] == [("cat", BOX, "partial")]


def test_ordinals_count_tokens_anywhere_in_the_text():
    a, b = int_to_token(1), int_to_token(2)
    text = f'{a}{{"desc": "x", "bbox": [{a}]}} {{"desc": "{b}", "bbox": [{a}, {a}, {b}, {b}]}}'
    answer = parse_answer(text, "json")
    assert answer.coord_count == 7
    assert answer.objects[0].coord_indices == range(3, 7)


def test_ordinals_of_whole_and_of_bent_records():
    tokens = ", ".join(int_to_token(k) for k in (1, 2, 3, 4))
    whole, bent = f'{{"desc": "a", "bbox": [{tokens}]}}', f'{{"id": 1, "desc": "b", "bbox": [{tokens}]}}'
    answer = parse_answer(f"[{whole}, {bent}, {whole}]")
    assert [o.coord_indices for o in answer] == [range(0, 4), range(4, 8), range(8, 12)]
    assert [o.start_index for o in answer] == [0, 1, 2]
    assert (answer.coord_count, answer.start_count) == (12, 3)


def test_points_and_polygons_are_kept_and_have_a_box():
    text = (
        '[{"point_2d": [500, 0], "label": "p"}, {"poly": [[100, 100], [300, 100], [200, 400]], "label": "t"}]'
    )
    point, polygon = parse_answer(text).objects
    assert (point.geometry, point.points, point.box) == (
        "point",
        ((0.5, 0.0),),
        (0.4995, 0.0, 0.5005, 0.0005),
    )
    assert (polygon.geometry, polygon.box) == ("polygon", (0.1, 0.1, 0.3, 0.4))
    assert polygon.points == ((0.1, 0.1), (0.3, 0.1), (0.2, 0.4))


def test_a_list_of_boxes_under_one_label_is_several_objects():
    answer = parse_answer('{"bbox_2d": [[1, 2, 3, 4], [5, 6, 7, 8]], "label": "cat"}')
    assert [(o.desc, o.start_index) for o in answer] == [("cat", 0), ("cat", 0)]


def test_pixels_of_a_named_picture():
    (item,) = parse_answer(CAT, scale="pixels", image_size=(1000, 800)).objects
    assert item.box == (0.1, 0.25, 0.3, 0.5)


def test_a_label_that_is_no_text_is_an_empty_one():
    assert parse_answer('{"bbox_2d": [1, 2, 3, 4], "label": null}').objects[0].desc == ""


def test_half_a_surrogate_pair_can_be_written_to_a_file():
    (item,) = parse_answer('{"bbox_2d": [1, 2, 3, 4], "label": "\\ud83d"}').objects
    item.desc.encode()


# ---------------------------------------------------------------------- location tokens


def test_paligemma():
    text = "<loc0256><loc0128><loc0768><loc0512> cat ; <loc0000><loc0000><loc1023><loc1023> red car"
    answer = parse_answer(text)
    assert (answer.format, answer.status) == ("paligemma", "ok")
    assert [(o.desc, o.box) for o in answer] == [
        ("cat", (0.125, 0.25, 0.5, 0.75)),
        ("red car", (0.0, 0.0, 1023 / 1024, 1023 / 1024)),
    ]
    assert answer.objects[1].coord_indices == range(4, 8)


def test_paligemma_segmentation_tokens_are_passed_over():
    (item,) = parse_answer("<loc0256><loc0128><loc0768><loc0512><seg001><seg127> cat<eos>").objects
    assert item.desc == "cat"


def test_paligemma_faults():
    answer = parse_answer(
        "<loc0001><loc0002> a ; <loc0001><loc0002><loc1024><loc0004> b ; <loc0001><loc0002><loc0003>"
    )
    assert reasons(answer) == ["wrong_arity", "invalid_coordinate", "truncated"]
    cut = parse_answer("<loc0001><loc0002><loc0003><loc0004>")
    assert (cut.objects[0].completeness, cut.truncated) == ("partial", True)


def test_florence():
    text = "</s><s>red car<loc_52><loc_333><loc_932><loc_774>door<loc_0><loc_1><loc_2><loc_3></s>"
    answer = parse_answer(text)
    assert (answer.format, answer.status) == ("florence2", "ok")
    assert [o.desc for o in answer] == ["red car", "door"]
    assert answer.objects[0].box == pytest.approx((0.0525, 0.3335, 0.9325, 0.7745))


def test_florence_boxes_share_a_phrase_by_fours():
    answer = parse_answer(
        "cat<loc_1><loc_2><loc_3><loc_4><loc_5><loc_6><loc_7><loc_8>dog<loc_1><loc_2><loc_3>"
    )
    assert [(o.desc, o.first_coord_index, o.start_index) for o in answer] == [("cat", 0, 0), ("cat", 4, 0)]
    assert reasons(answer) == ["truncated"]


def test_florence_polygon():
    (item,) = parse_answer("x<poly><loc_0><loc_0><loc_99><loc_0><loc_50><loc_199></poly>").objects
    assert (item.geometry, len(item.points)) == ("polygon", 3)
    assert item.box == pytest.approx((0.0005, 0.0005, 0.0995, 0.1995))


def test_scales_of_other_models_do_not_follow_our_grid():
    text = "cat<loc_0><loc_0><loc_999><loc_999>"
    assert parse_answer(text, grid=CoordGrid(scale=999)).objects[0].box == parse_answer(text).objects[0].box


@pytest.mark.parametrize("order", ["box first", "label first"])
@pytest.mark.parametrize(
    "numbers", ["1, 2, 3, 4", "1.5,2, 30,4", "<|coord_1|>, <|coord_2|>, <|coord_3|>, <|coord_4|>"]
)
def test_a_further_key_changes_nothing(order, numbers):
    """A record with just label and box is read in one step; a further key sends it down the long way."""
    box, label = f'"bbox_2d": [{numbers}]', '"label": "red car"'
    first, second = (box, label) if order == "box first" else (label, box)
    short, long = (f"[{{{first}, {second}{more}}}]" for more in ("", ', "id": "seven"'))
    (a,), (b,) = parse_answer(short).objects, parse_answer(long).objects
    assert (a.desc, a.box, a.bins, a.coord_indices) == (b.desc, b.box, b.bins, b.coord_indices)
    assert (a.completeness, a.start_index) == (b.completeness, b.start_index)


@pytest.mark.parametrize(
    ("text", "found", "truncated"),
    [
        (
            "cat<loc_100><loc_200><loc_300><loc_400>dog<loc_1><loc_2><loc_3><loc_4>",
            [("cat", "box", "complete"), ("dog", "box", "complete")],
            False,
        ),
        ("cat<loc_100><loc_200><loc_300><loc_400>dog<loc_1><loc_2>", [("cat", "box", "complete")], True),
        (
            "cat<poly><loc_1><loc_2><loc_3><loc_2><loc_3><loc_4></poly>dog<loc_1><loc_2><loc_3><loc_4>",
            [("cat", "polygon", "complete"), ("dog", "box", "complete")],
            False,
        ),
        (
            "<loc0100><loc0200><loc0300><loc0400> cat ; <loc0001><loc0002><loc0003><loc0004>",
            [("cat", "box", "complete"), ("", "box", "partial")],
            True,
        ),
    ],
)
def test_location_tokens_say_what_is_whole_and_what_was_cut_off(text, found, truncated):
    answer = parse_answer(text)
    assert [(item.desc, item.geometry, item.completeness) for item in answer] == found
    assert answer.truncated is truncated and answer.start_count == 2
    assert [item.start_index for item in answer] == list(range(len(found)))
