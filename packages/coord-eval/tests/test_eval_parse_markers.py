"""The parser for marker tokens: what makes an object, what is dropped, and where everything stands."""

import itertools

import pytest

from coord_codec import (
    MARKERS,
    WILDCARD_TOKEN,
    CoordGrid,
    Instance,
    MarkerFamily,
    encode_target,
    int_to_token,
)
from coord_eval import DROP_REASONS, parse_answer

START, END = MARKERS["obj"].tokens
REF, REF_END, BOX, BOX_END = MARKERS["qwen"].tokens


def coords(*bins):
    return "".join(int_to_token(k) for k in bins)


def obj(desc, *bins):
    return f"{START}{desc}{coords(*bins)}{END}"


def qwen(desc, *bins):
    return f"{REF}{desc}{REF_END}{BOX}{coords(*bins)}{BOX_END}"


CAT = obj("cat", 12, 34, 56, 78)


def reasons(answer):
    return [drop.reason for drop in answer.dropped]


def test_one_object():
    answer = parse_answer(CAT)
    (item,) = answer.objects
    assert (item.desc, item.bins, item.completeness) == ("cat", (12, 34, 56, 78), "complete")
    assert item.box == (0.012, 0.034, 0.056, 0.078)
    assert CAT[slice(*item.span)] == CAT
    assert (answer.status, answer.format, answer.truncated, answer.scale) == ("ok", "obj", False, None)


@pytest.mark.parametrize("markers", ["obj", "qwen"])
@pytest.mark.parametrize("form", ["tokens", "numbers"])
def test_everything_encoded_is_read_back(markers, form):
    descs = [
        "red car",
        "猫",
        "👩‍👩‍👧",
        "a < b",
        "c (x)",
        'quoted "x"',
        "مرحبا\u200f",
        "nul\0",
        "[1, 2]",
        "{",
        "<loc",
    ]
    objects = [
        {"desc": d, "bbox": [0.001 * i, 0.002, 0.5 + 0.01 * i, 0.7 + 0.02 * i]} for i, d in enumerate(descs)
    ]
    instance = Instance(image="a.jpg", objects=objects)
    text = encode_target(instance, markers=markers, form=form, order="given")
    answer = parse_answer(text)
    assert [o.desc for o in answer] == descs
    assert answer.format == markers
    grid = CoordGrid()
    for item, source in zip(answer, instance.objects, strict=True):
        bins = tuple(grid.quantize(c) for c in source.bbox)
        assert item.bins == bins
        assert item.box == tuple(grid.dequantize(k) for k in bins)
    assert "".join(text[slice(*o.span)] for o in answer) == text
    assert answer.scale_assumed == (form == "numbers")


@pytest.mark.parametrize("arity", range(9))
@pytest.mark.parametrize("write", [obj, qwen])
def test_only_four_coordinates_make_an_object(write, arity):
    text = write("cat", *range(10, 10 + arity)) + write("dog", 1, 2, 3, 4)
    answer = parse_answer(text)
    assert [o.desc for o in answer] == (["cat", "dog"] if arity == 4 else ["dog"])
    if arity != 4:
        assert reasons(answer) == ["wrong_arity" if arity else "no_coordinates"]
        assert text[slice(*answer.dropped[0].span)] == write("cat", *range(10, 10 + arity))
    assert answer.coord_count == arity + 4
    assert answer.objects[-1].first_coord_index == arity


@pytest.mark.parametrize(
    "bad", [WILDCARD_TOKEN, "<|coord_1000|>", "<|coord_-1|>", "<|coord_007|>", "<|coord_|>"]
)
@pytest.mark.parametrize("place", range(5))
def test_an_invalid_coordinate_drops_the_object(bad, place):
    good = [int_to_token(k) for k in (12, 34, 56)]
    text = f"{START}cat{''.join([*good[:place], bad, *good[place:]])}{END}{CAT}"
    answer = parse_answer(text)
    assert reasons(answer) == ["invalid_coordinate"]
    assert answer.coord_count == 7
    assert answer.objects[0].coord_indices == range(3, 7)


def test_four_coordinates_and_a_wildcard_are_no_object():
    answer = parse_answer(f"{START}cat{coords(1, 2, 3, 4)}{WILDCARD_TOKEN}{END}")
    assert (reasons(answer), answer.status) == (["invalid_coordinate"], "failed")


def test_of_nested_starts_the_inner_one_counts():
    answer = parse_answer(
        f"{START}outer{coords(1, 2)}{START}inner{coords(3, 4, 5, 6)}{END}{coords(7, 8)}{END}"
    )
    assert [o.desc for o in answer] == ["inner"]
    assert reasons(answer) == ["nested_start", "stray_coordinates"]
    assert (answer.start_count, answer.objects[0].start_index) == (2, 1)
    assert answer.objects[0].coord_indices == range(2, 6)


def test_four_coordinates_without_end_are_partial():
    answer = parse_answer(f"{START}cat{coords(1, 2, 3, 4)}{START}dog{coords(3, 4, 5, 6)}")
    assert [(o.desc, o.completeness) for o in answer] == [("cat", "partial"), ("dog", "partial")]
    assert answer.truncated


def test_swapped_corners_are_repaired_and_marked():
    (item,) = parse_answer(obj("cat", 500, 100, 200, 700)).objects
    assert item.box == (0.2, 0.1, 0.5, 0.7)
    assert item.bins == (500, 100, 200, 700)
    assert (item.completeness, item.repairs) == ("repaired", ("swapped_corners",))


@pytest.mark.parametrize("bins", [(5, 1, 5, 9), (1, 5, 9, 5), (5, 5, 5, 5)])
def test_a_box_without_area_is_dropped(bins):
    answer = parse_answer(obj("cat", *bins))
    assert (answer.objects, reasons(answer)) == ((), ["no_area"])


def test_repeats_are_kept_and_counted():
    answer = parse_answer(CAT * 64)
    assert (len(answer), answer.repeats) == (64, 63)
    assert [o.first_coord_index for o in answer] == list(range(0, 256, 4))


@pytest.mark.parametrize("write", [obj, qwen])
def test_cut_off_anywhere_whole_objects_remain(write):
    parts = [write("red car", 1, 2, 300, 400), write("dog", 5, 6, 700, 800)]
    text = "".join(parts)
    for cut in range(len(text) + 1):
        answer = parse_answer(text[:cut], write.__name__)
        whole = (cut >= len(parts[0])) + (cut >= len(text))
        complete = [o for o in answer if o.completeness == "complete"]
        assert len(complete) == whole
        assert len(answer) in (whole, whole + 1)
        for item in answer:
            assert item.bins in ((1, 2, 300, 400), (5, 6, 700, 800))
        for start, end in [d.span for d in answer.dropped] + [o.span for o in answer]:
            assert 0 <= start < end <= cut


def test_words_between_coordinates_drop_the_object():
    answer = parse_answer(f"{START}cat{coords(1, 2)} and {coords(3, 4)}{END}")
    assert reasons(answer) == ["stray_text"]


def test_white_space_around_is_nothing():
    answer = parse_answer(f"{START} cat {coords(1, 2)}\n{coords(3, 4)} {END}\n")
    assert answer.objects[0].desc == "cat"
    assert answer.status == "ok"


def test_coordinates_outside_objects_are_counted():
    answer = parse_answer(f"{coords(1, 2)}{CAT}{coords(3)}")
    assert reasons(answer) == ["stray_coordinates", "stray_coordinates"]
    assert answer.objects[0].coord_indices == range(2, 6)
    assert answer.coord_count == 7


def test_ordinals_are_right_however_bent_the_object():
    """The second object is read the long way: its white space keeps it from being taken in one step."""
    answer = parse_answer(
        f"{CAT}{START}dog{coords(1, 2)} {coords(3, 4)}{END}{CAT}{START}cut{coords(5, 6, 7, 8)}"
    )
    assert [o.coord_indices for o in answer] == [range(n, n + 4) for n in (0, 4, 8, 12)]
    assert [o.start_index for o in answer] == [0, 1, 2, 3]
    assert (answer.coord_count, answer.start_count) == (16, 4)


def test_an_object_without_description_counts_with_an_empty_one():
    assert parse_answer(obj("", 1, 2, 3, 4)).objects[0].desc == ""


def test_one_phrase_may_have_several_boxes_in_qwen():
    second = f"{BOX}{coords(5, 6, 7, 8)}{BOX_END}"
    answer = parse_answer(f"{qwen('cat', 1, 2, 3, 4)}{second}, {second}")
    assert [(o.desc, o.start_index) for o in answer] == [("cat", 0)] * 3


def test_a_qwen_box_without_phrase_has_no_description():
    (item,) = parse_answer(f"{BOX}(10,20),(30,40){BOX_END}").objects
    assert (item.desc, item.start_index, item.box) == ("", None, (0.01, 0.02, 0.03, 0.04))


def test_a_missing_qwen_marker_is_repaired_and_marked():
    (item,) = parse_answer(f"{REF}cat{BOX}{coords(1, 2, 3, 4)}{BOX_END}").objects
    assert (item.desc, item.repairs) == ("cat", ("missing_marker",))


def test_a_phrase_without_box_names_something_and_places_nothing():
    answer = parse_answer(f"{REF}cat{REF_END}{qwen('dog', 1, 2, 3, 4)}")
    assert reasons(answer) == ["no_coordinates"]
    assert [o.desc for o in answer] == ["dog"]


@pytest.mark.parametrize(
    ("scale", "size", "expected", "assumed"),
    [
        (None, None, (0.1, 0.2, 0.3, 0.4), True),
        (1000, None, (0.1, 0.2, 0.3, 0.4), False),
        (500, None, (0.2, 0.4, 0.6, 0.8), False),
        ("pixels", (1000, 500), (0.1, 0.4, 0.3, 0.8), False),
        (None, (1000, 500), (0.1, 0.4, 0.3, 0.8), False),
    ],
)
def test_plain_numbers_are_divided_by_the_scale_and_the_answer_says_so(scale, size, expected, assumed):
    answer = parse_answer(f"{START}cat(100,200),(300,400){END}", scale=scale, image_size=size)
    assert answer.objects[0].box == pytest.approx(expected)
    assert answer.scale_assumed is assumed


def test_numbers_beyond_the_picture_are_clipped_by_a_hair_and_dropped_by_more():
    text = f"{START}a(0,0),(1004,500){END}{START}b(0,0),(1400,500){END}"
    answer = parse_answer(text)
    assert [(o.desc, o.box, o.repairs) for o in answer] == [("a", (0, 0, 1, 0.5), ("clipped",))]
    assert reasons(answer) == ["out_of_range"]


def test_reasoning_is_passed_over():
    answer = parse_answer(f"<think>maybe {obj('dog', 1, 2, 3, 4)}</think>{CAT}")
    assert [o.desc for o in answer] == ["cat"]
    assert answer.objects[0].span[1] == len(f"<think>maybe {obj('dog', 1, 2, 3, 4)}</think>{CAT}")
    assert answer.objects[0].first_coord_index == 4  # ordinals count the whole text


def test_reasoning_without_end_holds_no_answer():
    answer = parse_answer(f"<think>maybe {CAT}")
    assert (reasons(answer), answer.truncated, len(answer)) == (["unclosed_thought"], True, 0)


@pytest.mark.parametrize(
    ("text", "status"), [("", "empty"), (" \n", "empty"), ("a cat", "failed"), (START, "failed"), (CAT, "ok")]
)
def test_status(text, status):
    assert parse_answer(text).status == status


def test_a_family_of_ones_own():
    family = MarkerFamily("mine", ("[[", "]]"))
    answer = parse_answer(f"[[cat{coords(1, 2, 3, 4)}]]", family)
    assert (answer.format, answer.objects[0].desc) == ("mine", "cat")


@pytest.mark.parametrize(
    "arguments",
    [
        {"format": "yaml"},
        {"scale": 0},
        {"scale": "pixels"},
        {"scale": float("nan")},
        {"scale": "pixels", "image_size": (0, 9)},
    ],
)
def test_wrong_arguments_raise_whatever_the_text(arguments):
    with pytest.raises(
        ValueError, match=next(iter(arguments)) if "image_size" not in arguments else "image_size"
    ):
        parse_answer("", **arguments)


def test_every_reason_is_documented():
    pieces = [
        START,
        END,
        REF,
        REF_END,
        BOX,
        BOX_END,
        "cat",
        coords(5),
        coords(1, 2, 3, 4),
        "<|coord_1000|>",
        "(1,2)",
    ]
    seen = set()
    for text in itertools.product(pieces, repeat=4):
        seen |= set(reasons(parse_answer("".join(text))))
    assert seen <= set(DROP_REASONS)
    assert {"nested_start", "truncated", "stray_coordinates", "no_coordinates", "wrong_arity"} <= seen
