"""Objects between marker tokens: what makes one, what is repaired or dropped, and where everything stands."""

import itertools

import pytest

from coord_codec import MARKERS, WILDCARD_TOKEN, CoordGrid, Instance, MarkerFamily, encode_target, int_to_token
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
FOUR, SIDES = coords(12, 34, 56, 78), coords(100, 200, 300, 400)


def reasons(answer):
    return [drop.reason for drop in answer.dropped]


@pytest.mark.parametrize("markers", ["obj", "qwen"])
@pytest.mark.parametrize("form", ["tokens", "numbers"])
def test_markers_parse_everything_that_was_encoded(markers, form):
    descs = ["red car", "猫", "👩‍👩‍👧", "a < b", "c (x)", 'quoted "x"', "مرحبا\u200f", "nul\0", "[1, 2]", "{", "<loc"]
    objects = [{"desc": d, "bbox": [0.001 * i, 0.002, 0.5 + 0.01 * i, 0.7 + 0.02 * i]} for i, d in enumerate(descs)]
    instance = Instance(image="a.jpg", objects=objects)
    text = encode_target(instance, markers=markers, form=form, order="given")
    answer = parse_answer(text)
    assert [o.desc for o in answer] == descs
    assert (answer.format, answer.status, answer.truncated) == (markers, "ok", False)
    grid = CoordGrid()
    for item, source in zip(answer, instance.objects, strict=True):
        bins = tuple(grid.quantize(c) for c in source.bbox)
        assert (item.bins, item.completeness) == (bins, "complete")
        assert item.box == tuple(grid.dequantize(k) for k in bins)
    assert "".join(text[slice(*o.span)] for o in answer) == text
    assert answer.scale_assumed == (form == "numbers")


@pytest.mark.parametrize("arity", range(9))
@pytest.mark.parametrize("write", [obj, qwen])
def test_markers_wrong_arity_is_dropped(write, arity):
    text = write("cat", *range(10, 10 + arity)) + write("dog", 1, 2, 3, 4)
    answer = parse_answer(text)
    assert [o.desc for o in answer] == (["cat", "dog"] if arity == 4 else ["dog"])
    if arity != 4:
        assert reasons(answer) == ["wrong_arity" if arity else "no_coordinates"]
        assert text[slice(*answer.dropped[0].span)] == write("cat", *range(10, 10 + arity))
    assert answer.coord_count == arity + 4
    assert answer.objects[-1].first_coord_index == arity


@pytest.mark.parametrize("bad", [WILDCARD_TOKEN, "<|coord_1000|>", "<|coord_-1|>", "<|coord_007|>", "<|coord_|>"])
@pytest.mark.parametrize("place", range(5))
def test_markers_invalid_coordinate_drops_the_object(bad, place):
    good = [int_to_token(k) for k in (12, 34, 56)]
    text = f"{START}cat{''.join([*good[:place], bad, *good[place:]])}{END}{CAT}"
    answer = parse_answer(text)
    assert reasons(answer) == ["invalid_coordinate"]
    assert answer.coord_count == 7
    assert answer.objects[0].coord_indices == range(3, 7)


@pytest.mark.parametrize(
    ("text", "descs", "dropped"),
    [
        (f"{START}cat{FOUR}{WILDCARD_TOKEN}{END}", [], ["invalid_coordinate"]),
        (f"{START}cat{coords(1, 2)} and {coords(3, 4)}{END}", [], ["stray_text"]),
        (f"{START} cat {coords(1, 2)}\n{coords(3, 4)} {END}\n", ["cat"], []),
        (obj("", 1, 2, 3, 4), [""], []),
        (obj("cat", 5, 1, 5, 9), [], ["no_area"]),
        (obj("cat", 1, 5, 9, 5), [], ["no_area"]),
        (obj("cat", 5, 5, 5, 5), [], ["no_area"]),
        (f"{REF}cat{REF_END}{qwen('dog', 1, 2, 3, 4)}", ["dog"], ["no_coordinates"]),
        (f"<think>maybe {CAT}", [], ["unclosed_thought"]),
        (START, [], ["truncated"]),
    ],
)
def test_markers_objects_and_drops_of_a_text(text, descs, dropped):
    answer = parse_answer(text)
    assert ([o.desc for o in answer], reasons(answer)) == (descs, dropped)
    assert answer.status == ("failed" if not descs else "partial" if dropped else "ok")
    assert answer.truncated is bool({"unclosed_thought", "truncated"} & set(dropped))


def test_markers_inner_of_nested_starts_counts():
    answer = parse_answer(f"{START}outer{coords(1, 2)}{START}inner{coords(3, 4, 5, 6)}{END}{coords(7, 8)}{END}")
    assert [o.desc for o in answer] == ["inner"]
    assert reasons(answer) == ["nested_start", "stray_coordinates"]
    assert (answer.start_count, answer.objects[0].start_index) == (2, 1)
    assert answer.objects[0].coord_indices == range(2, 6)


def test_markers_swapped_corners_are_repaired():
    (item,) = parse_answer(obj("cat", 500, 100, 200, 700)).objects
    assert item.box == (0.2, 0.1, 0.5, 0.7)
    assert item.bins == (500, 100, 200, 700)
    assert (item.completeness, item.repairs) == ("repaired", ("swapped_corners",))


def test_markers_repeats_are_kept_and_counted():
    answer = parse_answer(CAT * 64)
    assert (len(answer), answer.repeats) == (64, 63)
    assert [o.first_coord_index for o in answer] == list(range(0, 256, 4))


@pytest.mark.parametrize("write", [obj, qwen])
def test_markers_cut_anywhere_keep_complete_objects(write):
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


def test_markers_ordinals_of_fast_and_slow_objects():
    """The second object is read the long way: its white space keeps it from being taken in one step."""
    answer = parse_answer(f"{CAT}{START}dog{coords(1, 2)} {coords(3, 4)}{END}{CAT}{START}cut{coords(5, 6, 7, 8)}")
    assert [o.coord_indices for o in answer] == [range(n, n + 4) for n in (0, 4, 8, 12)]
    assert [o.start_index for o in answer] == [0, 1, 2, 3]
    assert (answer.coord_count, answer.start_count) == (16, 4)


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
def test_scale_divides_plain_numbers(scale, size, expected, assumed):
    answer = parse_answer(f"{START}cat(100,200),(300,400){END}", scale=scale, image_size=size)
    assert answer.objects[0].box == pytest.approx(expected)
    assert answer.scale_assumed is assumed


def test_scale_clips_or_drops_numbers_outside_the_image():
    text = f"{START}a(0,0),(1004,500){END}{START}b(0,0),(1400,500){END}"
    answer = parse_answer(text)
    assert [(o.desc, o.box, o.repairs) for o in answer] == [("a", (0, 0, 1, 0.5), ("clipped",))]
    assert reasons(answer) == ["out_of_range"]


def test_reasoning_is_skipped():
    thought = f"<think>maybe {obj('dog', 1, 2, 3, 4)}</think>"
    text = f"{thought}{CAT}{thought}{CAT}"
    answer = parse_answer(text)
    assert [text[slice(*item.span)] for item in answer] == [CAT, CAT]
    assert [(item.first_coord_index, item.start_index) for item in answer] == [(4, 1), (12, 3)]  # of the whole text
    assert (answer.coord_count, answer.start_count) == (16, 4)


def test_marker_family_of_the_caller():
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
def test_parse_answer_refuses_wrong_arguments(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments)) if "image_size" not in arguments else "image_size"):
        parse_answer("", **arguments)


@pytest.mark.slow
def test_drop_reasons_are_documented():
    pieces = [START, END, REF, REF_END, BOX, BOX_END, "cat", coords(5), coords(1, 2, 3, 4), "<|coord_1000|>", "(1,2)"]
    seen = set()
    for text in itertools.product(pieces, repeat=3):
        seen |= set(reasons(parse_answer("".join(text))))
    assert seen <= set(DROP_REASONS)
    assert {"nested_start", "truncated", "stray_coordinates", "no_coordinates", "wrong_arity"} <= seen


@pytest.mark.parametrize(
    ("whole", "bare"),
    [
        (f"{START}cat{FOUR}{END}", f"{START}cat(12,34),(56,78){END}"),
        (f"{REF}cat{REF_END}{BOX}{FOUR}{BOX_END}", f"{REF}cat{REF_END}{BOX}(12,34),(56,78){BOX_END}"),
    ],
    ids=["obj", "qwen"],
)
def test_markers_start_index_of_every_object(whole, bare):
    """The index into the log-probabilities of descriptions: one off, and every label has another's."""
    broken = whole.replace(int_to_token(34), "")  # three coordinates: dropped, but its start counts
    for text in (whole * 3, bare * 3, whole + bare + whole):
        assert [found.start_index for found in parse_answer(text).objects] == [0, 1, 2]
    for text in (whole + broken + whole, bare + broken + bare, broken + whole + broken + bare):
        expected = [0, 2] if not text.startswith(broken) else [1, 3]
        assert [found.start_index for found in parse_answer(text).objects] == expected


def test_markers_numbers_before_qwens_box_start_belong_to_the_description():
    """Of two markers numbers follow the description; of four they stand between markers of their own."""
    assert parse_answer(f"{START}cat(12,34),(56,78){START}dog{FOUR}{END}").objects[0].bins == (12, 34, 56, 78)
    cut = parse_answer(f"{REF}cat(12,34),(56,78){REF}dog{REF_END}{BOX}{FOUR}{BOX_END}")
    assert [found.desc for found in cut.objects] == ["dog"]
    assert reasons(cut) == ["nested_start"]


@pytest.mark.parametrize(("between", "desc"), [("", "cat"), (" , ", "cat"), (", and a dog ", "")])
def test_markers_further_box_shares_the_phrase_unless_words_stand_between(between, desc):
    answer = parse_answer(f"{REF}cat{REF_END}{BOX}{FOUR}{BOX_END}" + f"{between}{BOX}{FOUR}{BOX_END}" * 2)
    start_index = 0 if desc else None
    assert [(o.desc, o.start_index) for o in answer] == [("cat", 0), (desc, start_index), (desc, start_index)]


@pytest.mark.parametrize("text", [f"{REF}cat{REF_END}{BOX_END}", f"{REF}cat{BOX_END}", f"{START}cat{END}"])
def test_markers_object_without_coordinates_is_dropped(text):
    (drop,) = parse_answer(text).dropped
    assert (drop.reason, drop.span) == ("no_coordinates", (0, len(text)))


@pytest.mark.parametrize(
    ("inside", "boxes", "dropped"),
    [
        ("(1,2),(3,4)", [(1, 2, 3, 4)], []),
        ("(1,2), \n\t(3,4)", [(1, 2, 3, 4)], []),
        ("(1,2)(3,4)", [(1, 2, 3, 4)], []),
        ("(1,2) and (3,4)", [], ["stray_text"]),
        ("(1,2);(3,4)", [], ["stray_text"]),
        ("see (1,2),(3,4)", [], ["stray_text"]),
        ("(1,2),(3,4) there", [], ["stray_text"]),
        ("(1,2),(3,4)<|box_start|>(5,6),(7,8)", [(1, 2, 3, 4), (5, 6, 7, 8)], []),
    ],
)
def test_markers_plain_pairs_inside_qwens_box(inside, boxes, dropped):
    answer = parse_answer(f"<|object_ref_start|>cat<|object_ref_end|><|box_start|>{inside}<|box_end|>")
    assert [(item.desc, item.bins) for item in answer] == [("cat", box) for box in boxes]
    assert reasons(answer) == dropped


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        ("R cat/R S{}E", [()]),
        ("R cat/R {}E", [("missing_marker",)]),
        ("R cat S{}E", [("missing_marker",)]),
        ("R cat {}E", [("missing_marker",)]),
        ("R cat {}E S{}E", [("missing_marker",), ()]),
        ("R cat/R S{}S{}E", [(), ()]),
        ("<obj_start>cat{}<obj_end>", [()]),
    ],
)
def test_markers_missing_marker_repairs_that_object_alone(text, repairs):
    for short, marker in (("/R ", "<|object_ref_end|>"), ("R ", "<|object_ref_start|>")):
        text = text.replace(short, marker)
    text = text.replace("S{}", "<|box_start|>{}").replace("{}E", "{}<|box_end|>").replace("{}", SIDES)
    answer = parse_answer(text)
    assert [item.repairs for item in answer] == repairs
    assert [(item.desc.strip(), item.bins) for item in answer] == [("cat", (100, 200, 300, 400))] * len(repairs)
    assert [item.first_coord_index for item in answer] == [4 * n for n in range(len(repairs))]


def test_markers_stray_coordinates_shift_the_ordinals():
    stray = "<|coord_7|><|coord_8|>"
    answer = parse_answer(f"{stray}<obj_start>cat{SIDES}<obj_end>{stray}<obj_start>dog{SIDES}<obj_end>{stray}")
    assert [item.coord_indices for item in answer] == [range(2, 6), range(8, 12)]
    assert reasons(answer) == ["stray_coordinates"] * 3 and answer.coord_count == 14
    ends = [drop.span for drop in answer.dropped]
    assert ends[0] == (0, len(stray)) and ends[1][1] - ends[1][0] == len(stray)


def test_markers_missing_end_stops_at_the_next_start():
    answer = parse_answer(f"<obj_start>cat{SIDES}<obj_start>dog{SIDES}")
    assert [(item.desc, item.completeness) for item in answer] == [("cat", "partial"), ("dog", "partial")]
    assert answer.truncated
    answer = parse_answer(f"<obj_start>cat(1,2),(3,4)<obj_start>dog{SIDES}<obj_end>")
    assert [(item.desc, item.completeness) for item in answer] == [("cat", "partial"), ("dog", "complete")]
    broken = parse_answer(
        f"<|object_ref_start|>cat<|object_ref_end|>(1,2),(3,4)<|object_ref_start|>dog{SIDES}<|box_end|>"
    )
    assert [(item.desc, item.repairs) for item in broken] == [
        ("cat", ("missing_marker",)),
        ("dog", ("missing_marker",)),
    ]
