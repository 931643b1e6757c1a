"""What changes a box is read or said, whatever the format: angles, places, units, percentages; no object is no drop."""

import json
import math

import pytest

from coord_codec.fields import OF_THE_OBJECT, meaning_of, names_of
from coord_eval import parse_answer
from coord_eval.parse.answer import without_other_images
from coord_eval.rewards import box_reward

BOX = (400, 450, 600, 550)
FORMS = {
    "json": '[{{"label": "ship", "bbox_2d": [{row}], "{name}": {value}}}]',
    "json, first": '[{{"{name}": {value}, "bbox_2d": [{row}], "label": "ship"}}]',
    "json of sides": '[{{"label": "ship", "x1": 400, "y1": 450, "x2": 600, "y2": 550, "{name}": {value}}}]',
    "json in text": '[{{"label": "ship", "bbox_2d": [{row}], "{name}": "{value}"}}]',
    "yaml": "- label: ship\n  bbox: [{row}]\n  {name}: {value}",
    "line": "ship: [{row}], {name}: {value}",
    "line of sides": "ship: x1=400, y1=450, x2=600, y2=550, {name}={value}",
    "csv": "label,x1,y1,x2,y2,{name}\nship,{row},{value}",
    "markdown": "| label | bbox | {name} |\n|---|---|---|\n| ship | [{row}] | {value} |",
    "elements": "<object><name>ship</name><{name}>{value}</{name}><bndbox><xmin>400</xmin><ymin>450</ymin>"
    "<xmax>600</xmax><ymax>550</ymax></bndbox></object>",
    "attributes": '<object label="ship" bbox="{row}" {name}="{value}"/>',
}


def written(form, name, value):
    return FORMS[form].format(name=name, value=value, row=",".join(map(str, BOX)))


@pytest.mark.parametrize("form", FORMS)
def test_angle_beside_a_box_turns_it_or_drops_it(form):
    for name in names_of("turn"):
        degrees = 30 if "rad" not in name else 0.5235987755982988
        text = written(form, name, degrees)
        if not OF_THE_OBJECT.isdisjoint(name.split("_")):  # the direction of the object, perhaps, and not of its box
            assert [drop.reason for drop in parse_answer(text, scale=1000, aspect=2.0).dropped] == ["turned"], text
            continue
        (item,) = parse_answer(text, scale=1000, aspect=2.0)
        assert (item.desc, item.geometry) == ("ship", "oriented"), text
        xs = [x * 2000 for x, _ in item.points]
        ys = [y * 1000 for _, y in item.points]
        cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)
        assert max(xs) - min(xs) == pytest.approx(400 * cos + 100 * sin, abs=0.01), text
        assert max(ys) - min(ys) == pytest.approx(400 * sin + 100 * cos, abs=0.01), text
        (square,) = parse_answer(text, scale=1000)
        assert (square.desc, "square_assumed" in square.repairs) == ("ship", True), text
        unknown = parse_answer(text, scale=1000, aspect=math.nan)
        assert ([drop.reason for drop in unknown.dropped], len(unknown)) == (["turned"], 0), text
        (upright,) = parse_answer(written(form, name, 0), scale=1000)
        assert upright.geometry == "box"


def test_angle_whose_unit_is_unknown_is_a_drop_and_the_others_of_the_answer_tell_it():
    one = '{{"bbox_2d": [400, 450, 600, 550], "label": "ship", "angle": {}}}'
    assert [drop.reason for drop in parse_answer(one.format(2), aspect=1.0).dropped] == ["turned"]
    assert [item.geometry for item in parse_answer(f"[{one.format(2)}, {one.format(40)}]", aspect=1.0)] == [
        "oriented"
    ] * 2


@pytest.mark.parametrize("form", FORMS)
def test_objects_that_name_several_images_are_no_objects_of_one(form):
    for name in names_of("place"):
        if form == "csv":
            text = f"{written(form, name, 1)}\nship,{','.join(map(str, BOX))},2"
        elif form == "markdown":
            text = f"{written(form, name, 1)}\n| ship | [{','.join(map(str, BOX))}] | 2 |"
        else:
            text = f"{written(form, name, 1)}\n{written(form, name, 2)}"
        answer = parse_answer(text, scale=1000)
        assert {item.place for item in answer} == {"1", "2"}, text
        kept = without_other_images(answer, {"2"})
        assert ([item.place for item in kept], [drop.reason for drop in kept.dropped]) == (["2"], ["other_image"])


@pytest.mark.parametrize("form", FORMS)
def test_unit_that_a_record_states_is_that_in_which_it_is_read(form):
    for value, reasons in (("pixels", ["other_unit"]), ("percent", ["out_of_range"])):
        answer = parse_answer(written(form, "unit", f'"{value}"' if form.startswith("json") else value), scale=1000)
        if form != "json in text":
            assert ([drop.reason for drop in answer.dropped], len(answer)) == (reasons, 0), (form, value)


PRESENT = ("exists", "is_present", "is_valid", "present", "valid")


@pytest.mark.parametrize("form", FORMS)
def test_object_that_a_record_marks_as_deleted_is_a_counted_drop(form):
    for name in (*names_of("deleted"), "isDeleted"):
        where_false = name in PRESENT
        for value, kept in (("1", where_false), ("true", where_false), ("0", not where_false), ("no", not where_false)):
            answer = parse_answer(written(form, name, f'"{value}"' if form == "json" else value), scale=1000)
            count = int(kept)
            assert (len(answer), [drop.reason for drop in answer.dropped]) == (count, ["deleted"] * (1 - count)), form


SPELLED = {
    "turned": [
        "rotationAngle",
        "bbox-angle",
        "Rotation Angle",
        "angle_in_degrees",
        "tilt_angle",
        "headingAngle",
        "skew",
    ],
    "place": [
        "imageIndex",
        "image-number",
        "Frame No",
        "photo",
        "file_name",
        "sourceImage",
        "timestamp_ms",
        "videoTime",
    ],
    "unit": ["bboxUnits", "coordinate_unit", "coords-type", "Coordinate Format", "bbox_type", "is_normalised"],
}


@pytest.mark.parametrize(("meaning", "name"), [(key, name) for key, names in SPELLED.items() for name in names])
def test_field_means_the_same_in_every_spelling_and_format(meaning, name):
    value = {"turned": 30, "place": 2, "unit": "pixels"}[meaning]
    for form in FORMS:
        if form in ("elements", "attributes") and not name.isidentifier():
            continue
        stated = '"pixels"' if meaning == "unit" and form in ("json", "json, first", "json of sides") else value
        answer = parse_answer(written(form, name, stated), scale=1000, aspect=math.nan)
        if meaning == "place":
            assert [item.place for item in answer] == ["2"], form
        else:
            reason = "other_unit" if meaning == "unit" else "turned"
            assert ([drop.reason for drop in answer.dropped], len(answer)) == ([reason], 0), form


ASIDE = [
    *(("iscrowd", "1", "0"), ("IsGroupOf", "1", "0"), ("ignore", "1", "false"), ("hidden", "true", "false")),
    *(("visible", "false", "true"), ("status", "deleted", "active"), ("status", "rejected", "done")),
]
SETTINGS = [
    *(("scale", "2", "1"), ("scale", "0.5", "1000"), ("scale_factor", "0.5", "1"), ("scale", "pixels", "small")),
    *(("origin", "bottom-left", "top-left"), ("origin", "center", "web"), ("relative", "false", "true")),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "changes", "keeps", "reason"),
    [(*row, "deleted") for row in ASIDE] + [(*row, "other_unit") for row in SETTINGS],
)
def test_field_that_sets_a_box_aside_or_places_its_numbers_elsewhere_drops_it(form, name, changes, keeps, reason):
    for value, reasons in ((changes, [reason]), (keeps, [])):
        is_bare = value.replace(".", "").isdigit() or value in ("true", "false")
        stated = value if is_bare or not form.startswith("json") or form == "json in text" else f'"{value}"'
        answer = parse_answer(written(form, name, stated), scale=1000)
        assert ([drop.reason for drop in answer.dropped], len(answer)) == (reasons, 1 - len(reasons)), value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["t", "view", "crop", "tile", "panel", "tileIndex", "view_id"])
def test_numbered_part_of_an_image_is_a_place_and_a_word_is_none(form, name):
    assert [item.place for item in parse_answer(written(form, name, 2), scale=1000)] == ["2"]
    if name in ("view", "crop") and form != "json" and not form.startswith(("json, first", "json of")):
        assert [item.place for item in parse_answer(written(form, name, "front"), scale=1000)] == [""]


SETTING_FORMS = (
    '[{{"label": "ship", "bbox_2d": [400, 450, 600, 550], "{}": [{}, {}]}}]',
    '{{"label": "ship", "bbox": [400, 450, 600, 550], "{}": {{"x": {}, "y": {}}}}}',
    '{{"{}": {{"x": {}, "y": {}}}, "label": "ship", "bbox": {{"x1": 400, "y1": 450, "x2": 600, "y2": 550}}}}',
    "label: ship\nbbox: [400, 450, 600, 550]\n{}: [{}, {}]",
    "label: ship\n{}: [{}, {}]\nbbox: [400, 450, 600, 550]",
    "label: ship\n{}: {{x: {}, y: {}}}\nbbox: [400, 450, 600, 550]",
    "label: ship\n{}:\n  x: {}\n  y: {}\nbbox: [400, 450, 600, 550]",
    "label: ship\nbbox: [400, 450, 600, 550]\n{}:\n  - {}\n  - {}",
    "ship: [400, 450, 600, 550], {}: [{}, {}]",
    "<object><name>ship</name><{0}><x>{1}</x><y>{2}</y></{0}><bbox>400, 450, 600, 550</bbox></object>",
    "| label | bbox | {} |\n|--|--|--|\n| ship | [400, 450, 600, 550] | [{}, {}] |",
)


@pytest.mark.parametrize("form", SETTING_FORMS)
@pytest.mark.parametrize(("name", "unchanged"), [("origin", 0), ("offset", 0), ("scale", 1)])
def test_pair_that_moves_or_scales_a_box_is_that_of_the_box(form, name, unchanged):
    (item,) = parse_answer(form.format(name, unchanged, unchanged), scale=1000)
    assert (item.desc, item.box) == ("ship", (0.4, 0.45, 0.6, 0.55))
    for numbers in ((100, 50), (unchanged, 50), (100, unchanged)):
        answer = parse_answer(form.format(name, *numbers), scale=1000)
        assert ([drop.reason for drop in answer.dropped], len(answer)) == (["other_unit"], 0), numbers


@pytest.mark.parametrize("objects", ["ship: [400, 450, 600, 550]", '[{"label": "ship", "bbox": [400, 450, 600, 550]}]'])
def test_origin_before_a_list_is_that_of_its_boxes(objects):
    answer = parse_answer(f"origin: {{x: 0, y: 0}}\n{objects}", scale=1000)
    assert ([item.desc for item in answer], answer.dropped) == (["ship"], ())
    answer = parse_answer(f"origin: {{x: 100, y: 50}}\n{objects}", scale=1000)
    assert ([*answer], "other_unit" in {drop.reason for drop in answer.dropped}) == ([], True)


def test_origin_alone_is_a_point():
    (item,) = parse_answer('{"origin": [100, 50]}', scale=1000, geometry="point")
    assert item.desc == "origin"
    answer = parse_answer('{"origin": [100, 50]}', scale=1000)  # where boxes are asked for, it is no object
    assert ([*answer], len(answer.dropped)) == ([], 1)


@pytest.mark.parametrize("place", ["center", "size"])
def test_angle_and_score_within_a_centre_or_a_size_are_those_of_the_object(place):
    record = {"label": "ship", "center": {"x": 500, "y": 500}, "size": {"width": 200, "height": 100}}
    record[place] = {**record[place], "angle": 90, "score": 0.7}
    (item,) = parse_answer(json.dumps(record), scale=1000)
    assert item.box == pytest.approx((0.45, 0.4, 0.55, 0.6))
    assert item.score == 0.7


SHARES = ("0.95", "95%", '"0,95"', '"95 percent"', '"95,0 %"', "[0.95]", '{"value": 0.95}', '["95%"]')
SHARE_KEYS = ("score", "scores", "confidenceLevel", "det_score", "Konfidenz", "certainty", "class prob", "신뢰도")


@pytest.mark.parametrize("value", SHARES)
@pytest.mark.parametrize("key", SHARE_KEYS)
def test_confidence_is_read_in_every_spelling(key, value):
    (item,) = parse_answer(f'[{{"label": "ship", "bbox_2d": [400, 450, 600, 550], "{key}": {value}}}]', scale=1000)
    assert (item.desc, item.score) == ("ship", 0.95)
    if value.startswith(('"', "0")) or "%" in value[:3]:
        (item,) = parse_answer(f"label: ship\n{key}: {value.strip(chr(34))}\nbbox: [400, 450, 600, 550]", scale=1000)
        assert item.desc == "ship"


@pytest.mark.parametrize(
    ("value", "score"), [("0", 0), ("1", 1), ("100", 1), ('"100%"', 1), ("101", None), ('"101%"', None), ("-0.1", None)]
)
def test_confidence_lies_between_0_and_1_with_both(value, score):
    (item,) = parse_answer(f'[{{"label": "ship", "bbox_2d": [400, 450, 600, 550], "score": {value}}}]', scale=1000)
    assert item.score == score


@pytest.mark.parametrize(("text", "found"), [("a b c d", []), ("a b c d e", ["a b c d e"])])
def test_text_of_up_to_four_words_beside_numbers_of_an_unknown_key_may_be_the_label_of_another_thing(text, found):
    answer = parse_answer(f'{{"a": "{text}", "b": [10, 20, 300, 400]}}', scale=1000)
    assert [item.desc for item in answer] == found and len(answer.dropped) == 1 - len(found)


@pytest.mark.parametrize("value", ["0,95", "95%", "95 %", ".95", "95", "[0.95]"])
def test_confidence_in_lines_is_never_cut_short(value):
    texts = [f"label: ship\nbbox: [1, 2, 30, 40]\nconfidence: {value}", f"ship [1, 2, 30, 40] conf={value}"]
    if value in ("95%", "95 %", ".95"):
        texts += [f"ship: [1, 2, 30, 40] {value}", f"- ship [1, 2, 30, 40], {value}"]
    for text in texts:
        answer = parse_answer(text)
        assert [(item.desc, item.score) for item in answer] == [("ship", 0.95)]
        assert not answer.dropped


@pytest.mark.parametrize("value", ["high", "NaN", "-", "null", "{ship: 0.9}"])
def test_confidence_that_is_no_number_leaves_a_list_item_whole(value):
    text = "- label: {}\n  confidence: {}\n  bbox: [400, 450, 600, 550]"
    answer = parse_answer("\n".join(text.format(name, value) for name in ("ship", "boat")), scale=1000)
    assert [(item.desc, item.score) for item in answer] == [("ship", None), ("boat", None)]


def test_confidences_of_several_boxes_are_one_each():
    text = '{{"boxes": [[1, 2, 30, 40], [50, 60, 70, 80]], "classes": ["a", "b"], "scores": {}}}'
    for scores in ("[0.9, 0.8]", '["90%", "80%"]'):
        assert [(item.desc, item.score) for item in parse_answer(text.format(scores))] == [("a", 0.9), ("b", 0.8)]
    for scores in ("[0.9, 0.8, 0.7]", "[[0.9, 0.1], [0.2, 0.8]]"):
        answer = parse_answer(text.format(scores))
        assert [item.score for item in answer] == [None, None]
        assert [drop.reason for drop in answer.dropped] == ["unread_numbers"]


LABELLED = (
    '{"label": "ship", "data": {"bbox": [400, 450, 600, 550]}}',
    '{"geometry": {"bbox": [400, 450, 600, 550]}, "label": "ship"}',
    '{"object": {"name": "ship", "attributes": {"bbox": [400, 450, 600, 550]}}}',
    '{"object": {"name": "ship"}, "location": {"bbox": [400, 450, 600, 550]}}',
    '{"bbox": [400, 450, 600, 550], "attributes": {"label": "ship"}}',
    '{"bbox": [400, 450, 600, 550], "label": {"text": "ship"}}',
    '{"label": "ship", "instances": [{"bbox": [400, 450, 600, 550]}]}',
    '{"names": ["ship"], "boxes": [[400, 450, 600, 550]]}',
    '{"Bezeichnung": "ship", "Box": [400, 450, 600, 550]}',
    '{"étiquette": "ship", "boîte": [400, 450, 600, 550]}',
    '{"класс": "ship", "рамка": [400, 450, 600, 550]}',
    '{"이름": "ship", "상자": [400, 450, 600, 550]}',
    '{"label": "ship", "bbox": {"type": "xywh", "coordinates": [400, 450, 200, 100]}}',
    '{"label": "ship", "bbox": {"format": "xywh", "value": [400, 450, 200, 100]}}',
    '{"label": "ship", "bbox": {"coords": [450, 400, 550, 600], "order": "yxyx"}}',
    "Klasse: ship\nBox: [400, 450, 600, 550]",
    "label: ship\nbreed: frigate\nbbox: [400, 450, 600, 550]",
)


@pytest.mark.parametrize("text", LABELLED)
def test_label_and_box_in_two_places_are_one_object(text):
    (item,) = parse_answer(text, scale=1000)
    assert (item.desc, item.box) == ("ship", pytest.approx((0.4, 0.45, 0.6, 0.55)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"thing": "ship", "where": [400, 450, 600, 550]}', "ambiguous"),
        ('{"labels": ["ship"]}', "no_coordinates"),
        ("ship: [400, 450, 600, 550], rotated by 30\u00b0", "unread_label"),
        ("ship: [400, 450, 600, 550] (frame 2)", "unread_label"),
        ("ship: [400, 450, 600, 550] (not visible)", "unread_label"),
        ("Units: percent\nship: [10, 20, 30, 40]", "other_unit"),
    ],
)
def test_words_or_keys_that_may_change_a_box_are_a_drop(text, reason):
    answer = parse_answer(text, scale=1000)
    assert ([drop.reason for drop in answer.dropped], len(answer)) == ([reason], 0)


OBJECT = '{"label": "ship", "bbox": [400, 450, 600, 550]}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{{"unit": "pixels", "objects": [{OBJECT}]}}', "other_unit"),
        (f'{{"objects": [{OBJECT}], "bbox_format": "xywh"}}', "other_unit"),
        (f'{{"objects": [{OBJECT}], "format": "xywh"}}', "other_unit"),
        (f'{{"meta": {{"unit": "pixels"}}, "objects": [{OBJECT}]}}', "other_unit"),
        ('{"label": "ship", "box": {"bbox": [400, 450, 600, 550], "unit": "pixels"}}', "other_unit"),
        ('{"label": "ship", "bbox_pixels": [400, 450, 600, 550]}', "other_unit"),
        ('{"label": "ship", "bbox": ["400px", "450px", "600px", "550px"]}', "other_unit"),
        ("ship: [400px, 450px, 600px, 550px]", "other_unit"),
        ('{"label": "ship", "rotation": {"angle": 30}, "bbox": [400, 450, 600, 550]}', "turned"),
        ('{"label": "ship", "meta": {"rotation": 30}, "bbox": [400, 450, 600, 550]}', "turned"),
        ('{"label": "ship", "geometry": {"angle": 30}, "bbox": [400, 450, 600, 550]}', "turned"),
        ('{"label": "ship", "rotation": {"value": 30}, "bbox": [400, 450, 600, 550]}', "turned"),
        ('{"label": "ship", "transform": "rotate(30deg)", "bbox": [400, 450, 600, 550]}', "turned"),
        ("label: ship\nbbox: [400, 450, 600, 550]\nrotation: 30 degrees", "turned"),
        ('{"label": "ship", "attributes": {"deleted": true}, "bbox": [400, 450, 600, 550]}', "deleted"),
        ('{"label": "ship", "found": false, "bbox": [400, 450, 600, 550]}', "deleted"),
    ],
)
def test_field_around_or_below_an_object_counts_as_one_beside_it(text, reason):
    answer = parse_answer(text, scale=1000, aspect=math.nan)
    assert ([drop.reason for drop in answer.dropped], len(answer)) == ([reason], 0)
    if reason == "other_unit" and "format" not in text:
        assert len(parse_answer(text, scale="pixels", image_size=(1000, 1000))) == 1


@pytest.mark.parametrize(
    "text",
    [
        f'{{"image_1": [{OBJECT}], "image_2": [{OBJECT}]}}',
        f'{{"frames": [{{"index": 0, "objects": [{OBJECT}]}}, {{"index": 1, "objects": [{OBJECT}]}}]}}',
        f'{{"frame_1": {OBJECT[:-1]}, "colour": "red"}}, "frame_2": {OBJECT}}}',
        f'{{"images": [{{"image": 1, "objects": [{OBJECT}]}}, {{"image": 2, "objects": [{OBJECT}]}}]}}',
        f'{{"image": 1, "objects": [{OBJECT}, {{"image": 2, "objects": [{OBJECT}]}}]}}',
        "Image 1:\n- ship: [400, 450, 600, 550]\nImage 2:\n- ship: [400, 450, 600, 550]",
    ],
)
def test_section_of_an_image_places_its_objects(text):
    answer = parse_answer(text, scale=1000)
    assert len({item.place for item in answer}) == len(answer) == 2
    assert [drop.reason for drop in without_other_images(answer).dropped] == ["other_image"] * 2


QUAD = [100, 200, 300, 250, 280, 400, 80, 350]


@pytest.mark.parametrize("geometry", ["box", "oriented", "polygon"])
@pytest.mark.parametrize("name", [*names_of("shape"), "bbox_2d"])
def test_quadrangle_is_read_below_each_of_its_keys(name, geometry):
    pairs = [QUAD[i : i + 2] for i in range(0, 8, 2)]
    for value in (QUAD, pairs):
        (item,) = parse_answer(json.dumps([{"label": "ship", name: value}]), scale=1000, geometry=geometry)
        assert (item.desc, item.box) == ("ship", (0.08, 0.2, 0.3, 0.4))
        assert item.geometry in ("oriented", "polygon")


@pytest.mark.parametrize("name", [name for name in names_of("shape") if name not in ("quad", "quadrilateral")])
def test_centre_size_and_angle_below_each_of_their_keys(name):
    for value in ([500, 500, 200, 100, 90], {"cx": 500, "cy": 500, "w": 200, "h": 100, "angle": 90}):
        (item,) = parse_answer(json.dumps([{"label": "ship", name: value}]), scale=1000, aspect=1.0)
        assert (item.desc, item.box) == ("ship", pytest.approx((0.45, 0.4, 0.55, 0.6)))


NUMBERS = {
    "json": '[{{"bbox_2d": [{}, {}, {}, {}], "label": "a"}}]',
    "json in text": '[{{"bbox_2d": "{} {} {} {}", "label": "a"}}]',
    "json texts": '[{{"bbox_2d": ["{}", "{}", "{}", "{}"], "label": "a"}}]',
    "json of sides": '[{{"x1": {}, "y1": {}, "x2": {}, "y2": {}, "label": "a"}}]',
    "list": "a: [{}, {}, {}, {}]",
    "row": "a,{},{},{},{}",
    "line of sides": "a: x1={}, y1={}, x2={}, y2={}",
    "csv": "label,x1,y1,x2,y2\na,{},{},{},{}",
    "elements": "<object><name>a</name><x1>{}</x1><y1>{}</y1><x2>{}</x2><y2>{}</y2></object>",
    "tag": "a <bbox>{} {} {} {}</bbox>",
    "qwen": "<|object_ref_start|>a<|object_ref_end|><|box_start|>({},{}),({},{})<|box_end|>",
    "obj": "<obj_start>a({},{}),({},{})<obj_end>",
    "internvl": "<ref>a</ref><box>[[{}, {}, {}, {}]]</box>",
    "deepseekvl2": "<|ref|>a<|/ref|><|det|>[[{}, {}, {}, {}]]<|/det|>",
}


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_mean_the_same_in_every_format(form):
    for numbers in ((".1", ".2", ".5", ".6"), ("0.1", "0.2", "0.5", "0.6"), ("10%", "20%", "50%", "60%")):
        for scale in (None, 1000) if "%" in numbers[0] else (None, 1):
            (item,) = parse_answer(NUMBERS[form].format(*numbers), scale=scale)
            assert (item.desc, item.box) == ("a", pytest.approx((0.1, 0.2, 0.5, 0.6))), (numbers, scale)
    for minus in ("-", "\u2212"):
        (item,) = parse_answer(NUMBERS[form].format(f"{minus}2", "+200", "+500", "600"), scale=1000)
        assert (item.box, item.repairs) == ((0, 0.2, 0.5, 0.6), ("clipped",)), minus
    (item,) = parse_answer(NUMBERS[form].format("100.5", "200", "500", "600.25"), scale=1000)
    assert item.box == pytest.approx((0.1005, 0.2, 0.5, 0.60025))


@pytest.mark.parametrize("form", NUMBERS)
def test_percentages_and_numbers_in_one_box_are_a_drop(form):
    answer = parse_answer(NUMBERS[form].format("10%", "20%", "500", "600"), scale=1000)
    assert len(answer) == 0 and answer.dropped


NOTHING = [
    *("[]", "null", "None", "none.", "{}", "[null]", '{"objects": null}', '{"dog": []}', "```json\nnull\n```"),
    *("There is no dog in the image.", "There are no dogs.", "No dog.", "No objects detected.", "Not found"),
    *("I cannot find a dog in this image.", "The image does not contain a dog.", "I don't see any dog here."),
    *(
        "The dog is not visible.",
        "There isn't a dog here.",
        "dog: none",
        "Sorry, no matches.",
        "\u6ca1\u6709\u72d7\u3002",
    ),
    *("Es gibt keinen Hund.", "Kein Hund gefunden.", "Il n'y a pas de chien.", "Aucun chien n'est visible."),
    *(
        "No hay ning\u00fan perro.",
        "N\u00e3o h\u00e1 cachorro.",
        "Non c'\u00e8 nessun cane.",
        "\u0421\u043e\u0431\u0430\u043a\u0438 \u043d\u0435\u0442.",
    ),
    *(
        "\u72ac\u306f\u898b\u3064\u304b\u308a\u307e\u305b\u3093\u3067\u3057\u305f\u3002",
        "\uac1c\uac00 \uc5c6\uc2b5\ub2c8\ub2e4.",
    ),
    *("I'm sorry, but there is no dog.", "Neither a dog nor a cat is visible.", "Geen hond.", '""', "Not applicable"),
    *("<answer>[]</answer>", "<answer>none</answer>", '{"count": 0, "dogs": []}', '{"found": false}', '{"dog": false}'),
    *('{"response": "No dog found."}', '[{"label": "dog", "bbox_2d": "not visible"}]', '[{"label": "no object"}]'),
    *('{"label": "dog", "present": false, "bbox": null}', "<|box_start|>none<|box_end|>", "{'dog': None}"),
    *('{"bbox_2d": null, "label": "dog"}', '[{"bbox_2d": [], "label": "dog"}]', '{"bbox_2d": "none", "label": "dog"}'),
    *('{"bbox_2d": [null, null, null, null], "label": "dog"}', "<ref>dog</ref><box>none</box>", "<box>none</box>"),
    *('{"frames": [{"frame": 1, "objects": []}, {"frame": 2, "objects": []}]}', "<think>hm</think>None"),
    *("[0, 0, 0, 0]", "dog: [0, 0, 0, 0]", '[{"bbox_2d": [0, 0, 0, 0], "label": "dog"}]', "(0,0),(0,0)"),
]


@pytest.mark.parametrize("text", NOTHING)
def test_answer_without_an_object_is_one_thing_however_it_is_said(text):
    answer = parse_answer(text)
    assert (answer.status, answer.objects, answer.dropped) == ("empty", (), ())
    assert box_reward([text], [[]]) == [1.0]
    assert box_reward([text], [[{"desc": "dog", "bbox": [0.1, 0.1, 0.3, 0.3]}]]) == [0.0]


@pytest.mark.parametrize(
    "text",
    [
        *("I cannot see the image.", "I am sorry, I cannot give coordinates.", "A dog.", "There is no cat, but a dog."),
        *(
            "Ich kann kein Bild sehen.",
            "No se puede ver la imagen.",
            "Il y a un chien pas loin.",
            "No image was given.",
        ),
    ],
)
def test_answer_that_says_something_else_is_not_empty(text):
    assert [drop.reason for drop in parse_answer(text).dropped] == ["unrecognised"]


@pytest.mark.parametrize("words", ["Boxes are [ymin, xmin, ymax, xmax].", "All as [y1, x1, y2, x2]:"])
@pytest.mark.parametrize("line", ['[{"bbox_2d": [200, 100, 400, 300], "label": "cat"}]', "cat: [200, 100, 400, 300]"])
def test_order_that_words_state_before_the_boxes_is_theirs(words, line):
    (item,) = parse_answer(f"{words}\n{line}", scale=1000)
    assert (item.desc, item.box, item.order) == ("cat", (0.1, 0.2, 0.3, 0.4), "yxyx")


@pytest.mark.parametrize("words", ["cat and dog", "cat, dog", "cat & dog"])
def test_as_many_names_as_boxes_on_a_line_are_refused(words):
    answer = parse_answer(f"{words}: [100, 200, 300, 400], [500, 600, 700, 800]")
    assert (len(answer), [drop.reason for drop in answer.dropped]) == (0, ["unread_label"] * 2)


def test_object_that_is_absent_beside_others_is_no_drop():
    answer = parse_answer('[{"bbox_2d": [1, 2, 30, 40], "label": "cat"}, {"bbox_2d": null, "label": "dog"}]')
    assert ([item.desc for item in answer], answer.status) == (["cat"], "ok")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('[{"bounding_box": {"min_x": 100, "min_y": 200, "max_x": 300, "max_y": 400}, "label": "bus"}]', "bus"),
        ('[{"bounding_box": {"minX": 100, "minY": 200, "maxX": 300, "maxY": 400}, "label": "bus"}]', "bus"),
        ('[{"block_bbox": [100, 200, 300, 400], "block_label": "text"}]', "text"),
    ],
)
def test_keys_in_use_are_known(text, label):
    (item,) = parse_answer(text, scale=1000)
    assert (item.desc, item.box) == (label, (0.1, 0.2, 0.3, 0.4))


def test_fields_of_the_table_have_one_meaning():
    assert all(meaning_of(name) == "turn" for name in names_of("turn"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ('"bbox_2d": [400, 450, 600, 550], "attributes": {"rotation": 30}', "turned"),
        ('"bbox_2d": [400, 450, 600, 550], "rotated": true', "turned"),
        ('"bbox_yxhw": [400, 450, 600, 550]', "no_coordinates"),
    ],
)
def test_field_below_attributes_and_order_that_no_format_has_are_no_plain_box(fields, reason):
    answer = parse_answer(f'[{{{fields}, "label": "ship"}}]', scale=1000, aspect=math.nan)
    assert ([drop.reason for drop in answer.dropped], len(answer)) == ([reason], 0)


@pytest.mark.parametrize("between", ["\n  ", ", "])
@pytest.mark.parametrize(
    ("place", "size", "box"),
    [
        ("position: {x: 100, y: 200}", "size: {width: 300, height: 400}", (0.1, 0.2, 0.4, 0.6)),
        ("origin: [100, 200]", "extent: [300, 400]", (0.1, 0.2, 0.4, 0.6)),
        ("center: {x: 250, y: 400}", "size: {w: 300, h: 400}", (0.1, 0.2, 0.4, 0.6)),
        ("top_left: {x: 100, y: 200}", "bottom_right: {x: 400, y: 600}", (0.1, 0.2, 0.4, 0.6)),
    ],
)
def test_two_pairs_of_numbers_in_yaml_are_one_box(place, size, box, between):
    answer = parse_answer(f"- label: dog\n  {place}{between}{size}\n- label: cat\n  {place}{between}{size}", scale=1000)
    assert [(item.desc, item.box) for item in answer] == [("dog", pytest.approx(box)), ("cat", pytest.approx(box))]
    assert not answer.dropped
