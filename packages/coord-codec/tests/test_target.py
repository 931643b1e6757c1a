"""Orders, limits and every kind of target text."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_codec import (
    MARKERS,
    CoordGrid,
    Geometry,
    Instance,
    MarkerFamily,
    Object,
    encode_target,
    order_objects,
    select_objects,
)

CAT = {"desc": "cat", "bbox": [0.012, 0.034, 0.056, 0.078]}
DOG = {"desc": 'big "dog"', "bbox": [0.5, 0.01, 1, 1]}
BOTH = Instance(image="a.jpg", objects=[CAT, DOG])
NONE = Instance(image="a.jpg", objects=[])


def obj(desc, x1, y1, x2=None, y2=None):
    return Object(desc=desc, bbox=[x1, y1, x2 or x1 + 0.1, y2 or y1 + 0.1])


def names(objects):
    return "".join(o.desc for o in objects)


def test_every_kind_of_text():
    def encode(**options):
        return encode_target(BOTH, order="given", **options)

    assert (
        encode()
        == encode(markers="qwen")
        == (
            "<|object_ref_start|>cat<|object_ref_end|>"
            "<|box_start|><|coord_12|><|coord_34|><|coord_56|><|coord_78|><|box_end|>"
            '<|object_ref_start|>big "dog"<|object_ref_end|>'
            "<|box_start|><|coord_500|><|coord_10|><|coord_999|><|coord_999|><|box_end|>"
        )
    )
    assert encode(markers="obj") == (
        "<obj_start>cat<|coord_12|><|coord_34|><|coord_56|><|coord_78|><obj_end>"
        '<obj_start>big "dog"<|coord_500|><|coord_10|><|coord_999|><|coord_999|><obj_end>'
    )
    assert encode(markers="obj", form="numbers") == (
        '<obj_start>cat(12,34),(56,78)<obj_end><obj_start>big "dog"(500,10),(999,999)<obj_end>'
    )
    assert encode(form="numbers").startswith(
        "<|object_ref_start|>cat<|object_ref_end|><|box_start|>(12,34),(56,78)<|box_end|><|object_ref_start|>big"
    )
    assert encode(style="json") == (
        '[{"desc": "cat", "bbox": [<|coord_12|>, <|coord_34|>, <|coord_56|>, <|coord_78|>]}, '
        '{"desc": "big \\"dog\\"", "bbox": [<|coord_500|>, <|coord_10|>, <|coord_999|>, <|coord_999|>]}]'
    )
    assert encode(style="json", form="numbers") == (
        '[{"bbox_2d": [12, 34, 56, 78], "label": "cat"}, {"bbox_2d": [500, 10, 999, 999], "label": "big \\"dog\\""}]'
    )


def test_an_image_without_objects():
    for markers in MARKERS:
        assert encode_target(NONE, markers=markers) == encode_target(NONE, markers=markers, form="numbers") == ""
    assert encode_target(NONE, style="json") == encode_target(NONE, style="json", form="numbers") == "[]"


def test_own_markers_and_own_grid():
    pair = MarkerFamily("mine", ("[", "]"))
    assert encode_target(BOTH, markers=pair, form="numbers", grid=CoordGrid(10, 10), max_objects=1) == (
        '[big "dog"(5,0),(9,9)]'
    )


descs = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda s: s.strip() and not re.search(r"<\|[^\s<>|]+\|>|<obj_", s)
)


@pytest.mark.parametrize("tokens", [("[", "]"), ("[", "]", "{", "}")])
def test_own_markers_inside_a_description_are_refused(tokens):
    for token in tokens:
        instance = Instance(image="a.jpg", objects=[{"desc": f"a {token} b", "bbox": (0.1, 0.2, 0.3, 0.4)}])
        with pytest.raises(ValueError, match=re.escape(f"'mine', found {token} in 'a {token} b'")):
            encode_target(instance, markers=MarkerFamily("mine", tokens))
        assert "a " in encode_target(instance, markers="obj")  # only the family that is written matters
        assert "a " in encode_target(instance, markers=MarkerFamily("mine", tokens), style="json")


@st.composite
def instances(draw):
    def box():
        (x1, x2), (y1, y2) = (sorted(draw(st.sets(st.integers(0, 999), min_size=2, max_size=2))) for _ in "xy")
        return [x1 / 1000, y1 / 1000, x2 / 1000, y2 / 1000]

    objects = [{"desc": d, "bbox": box()} for d in draw(st.lists(descs, max_size=4))]
    return Instance(image="a.jpg", objects=objects)


def read_back(text, style, form, markers):
    """A naive reader of well-formed text: what was written, as (description, bins)."""
    if style == "json":
        if form == "tokens":
            text = re.sub(r"<\|coord_(\d+)\|>", r"\1", text)
        return [(o.get("desc", o.get("label")), o.get("bbox", o.get("bbox_2d"))) for o in json.loads(text)]
    start, end = MARKERS[markers].tokens[0], MARKERS[markers].tokens[-1]
    found = []
    for part in text.split(end)[:-1]:
        assert part.startswith(start)
        bins = [int(n) for n in re.findall(r"\d+", part)[-4:]]
        box = "".join(f"<|coord_{k}|>" for k in bins) if form == "tokens" else "({},{}),({},{})".format(*bins)
        inner = "" if markers == "obj" else "<|object_ref_end|><|box_start|>"
        assert part.endswith(inner + box)
        found.append((part[len(start) : len(part) - len(inner + box)], bins))
    return found


@pytest.mark.slow
@given(
    instances(),
    st.sampled_from(["markers", "json"]),
    st.sampled_from(["tokens", "numbers"]),
    st.sampled_from([*MARKERS]),
)
@settings(max_examples=3 * settings().max_examples)
def test_every_text_can_be_read_back(instance, style, form, markers):
    text = encode_target(instance, style=style, form=form, markers=markers, order="given")
    expected = [(o.desc, [round(c * 1000) for c in o.bbox]) for o in instance.objects]
    assert read_back(text, style, form, markers) == expected


def test_top_left_order_is_by_row_then_column_and_stable():
    a, b, c, d, e = (obj("a", 0.5, 0.1), obj("b", 0.1, 0.5), obj("c", 0.1, 0.1), obj("d", 0.5, 0.1), obj("e", 0, 0.9))
    assert names(order_objects([a, b, c, d, e])) == "cadbe"
    assert names(order_objects([d, b, c, a, e], "top_left")) == "cdabe"


def test_other_orders():
    small, large, middle = obj("s", 0, 0, 0.1, 0.1), obj("l", 0.5, 0.5, 1, 1), obj("m", 0.2, 0.2, 0.4, 0.4)
    given_order = [small, large, middle]
    assert names(order_objects(given_order, "given")) == "slm"
    assert names(order_objects(given_order, "size")) == "lms"
    assert names(given_order) == "slm"  # the input is left alone
    one, two = obj("1", 0, 0, 0.5, 0.25), obj("2", 0.5, 0.5, 0.75, 1)  # of equal area
    assert names(order_objects([one, two], "size")) == "12" and names(order_objects([two, one], "size")) == "21"


def test_random_order_depends_on_the_seed_alone():
    objects = [obj(chr(97 + i), 0.01 * i, 0) for i in range(20)]
    first = names(order_objects(objects, "random", seed=1))
    assert first == names(order_objects(objects, "random", seed=1))
    assert first != names(order_objects(objects, "random", seed=2)) != names(objects)
    assert sorted(first) == sorted(names(objects))
    assert names(order_objects(objects, "random", seed="42/epoch 1")) != names(objects)


def test_the_limit_keeps_the_first_of_the_order_and_counts_the_rest():
    assert [o.desc for o in select_objects(BOTH, max_objects=1)[0]] == ['big "dog"']
    assert [o.desc for o in select_objects(BOTH, "given", 1)[0]] == ["cat"]
    assert [select_objects(BOTH, max_objects=n)[1] for n in (None, 1, 2, 3)] == [0, 1, 0, 0]
    assert encode_target(BOTH, max_objects=1, markers="obj").count("<obj_start>") == 1


def test_the_text_has_the_selected_objects_in_their_order():
    many = Instance(image="a.jpg", objects=[obj(chr(97 + i), 0.01 * i, 0) for i in range(20)])
    for seed in range(5):
        kept, dropped = select_objects(many, "random", 7, seed)
        text = encode_target(many, order="random", max_objects=7, seed=seed, style="json", form="numbers")
        assert "".join(o["label"] for o in json.loads(text)) == names(kept)
        assert dropped == 13


def test_json_keeps_letters_readable():
    cat = Instance(image="a.jpg", objects=[{"desc": "猫\n", "bbox": [0, 0, 1, 1]}])
    assert encode_target(cat, style="json", form="numbers") == '[{"bbox_2d": [0, 0, 999, 999], "label": "猫\\n"}]'


@pytest.mark.parametrize(
    "options",
    [{"style": "xml"}, {"form": "words"}, {"markers": "none such"}, {"order": "alphabet"}, {"max_objects": 0}],
)
def test_unknown_options_are_named(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}: expected .*found"):
        encode_target(BOTH, **options)


def test_seed_of_a_selection_is_that_of_its_order_and_numbers_of_a_shape_share_a_bracket():
    many = Instance(image="a.jpg", objects=[obj(chr(97 + i), 0.01 * i, 0) for i in range(20)])
    for seed in (1, 2, "3/epoch 4"):
        assert select_objects(many, "random", seed=seed)[0] == order_objects(many.targets, "random", seed)
    text = encode_target(many, markers="obj", form="numbers", max_objects=1, geometry=Triple())
    assert text == "<obj_start>a(0,0,100)<obj_end>"


class Triple(Geometry):
    """Three numbers that are no points."""

    name, about, least, most, numbers, keys = (
        "triple",
        "x, y, length",
        3,
        3,
        ("x", "y", "length"),
        ("triple", "triple_2d"),
    )

    def from_box(self, bbox):
        return bbox[0], bbox[1], bbox[2] - bbox[0]
