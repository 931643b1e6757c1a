"""The short cut of well-formed answers gives what the parsers of all formats give, or nothing."""

import random

import pytest

from coord_codec import Instance, encode_target
from coord_eval import parse_answer
from coord_eval.parse import parser

LABELS = [
    "cat",
    "red car",
    " dog ",
    "answer: cat",
    "model",
    "a & b",
    "cat, 1, 2, 3, 4",
    "R2-D2",
    "click",
    "\u25c1",
    "(x)",
]
PIECES = [
    *"{}[]:,\"'() \n",
    "label",
    "bbox_2d",
    "box_2d",
    "type",
    "0",
    "1",
    "0.5",
    "999",
    "1001",
    "<obj_start>",
    "None",
]


def texts(draw):
    """Yield answers of each style, whole and with one piece changed."""
    for style, markers, form in (
        ("markers", "obj", "tokens"),
        ("markers", "qwen", "tokens"),
        ("markers", "qwen", "numbers"),
        ("json", "obj", "tokens"),
        ("json", "obj", "numbers"),
    ):
        objects = []
        for _ in range(draw.randrange(1, 4)):
            x, y = draw.choice([0.0, 0.1, 0.5]), draw.uniform(0, 0.5)
            far = draw.choice([0.002, 0.4, 0.5])
            objects.append({"desc": draw.choice(LABELS[:6]), "bbox": [x, y, x + far, y + far]})
        text = encode_target(Instance(image="a.jpg", objects=objects), markers=markers, style=style, form=form)
        text = text.replace("cat", draw.choice(LABELS))
        at = draw.randrange(len(text))
        yield text
        yield f"```json\n{text}\n```"
        yield text[:at] + draw.choice(PIECES) + text[at:]
        yield text[:at] + draw.choice(PIECES) + text[at + 1 :]
        yield text[:at] + text[at + draw.randrange(1, 9) :]
        yield f"{text}\n{text}"


def token_texts(draw):
    """Yield answers of PaliGemma and Florence-2, whole and with one piece changed."""
    first = draw.randrange(2) == 0
    parts = []
    for _ in range(draw.randrange(1, 4)):
        x, y = draw.randrange(500), draw.randrange(500)
        box = [x, y, x + draw.choice([0, 1, 400, 530]), y + 9]
        label = draw.choice([*LABELS, "and a dog", "No helmet", ""])
        tokens = "".join(f"<loc{k:04d}>" if first else f"<loc_{k}>" for k in box)
        parts.append(f"{tokens} {label}" if first else f"{label}{tokens}")
    text = (draw.choice([" ; ", ";", "; "]) if first else draw.choice(["", " ", "\n"])).join(parts)
    at = draw.randrange(len(text))
    yield text
    yield f"{text}</s>"
    yield text[:at] + draw.choice(PIECES) + text[at:]
    yield text[:at] + text[at + 1 :]


@pytest.mark.slow
def test_short_cut_gives_the_answer_of_all_formats(fuzz, monkeypatch):
    short_cut, taken = parser.plain_answer, 0
    for _ in fuzz.times(400):
        for text in (*texts(fuzz.draw), *token_texts(fuzz.draw)):
            options = fuzz.draw.choice(
                [{}, {"scale": 1000}, {"scale": "pixels", "image_size": (640, 480)}, {"scale": 1}]
            )
            format = fuzz.draw.choice(["auto", "auto", "json", "obj", "qwen", "paligemma", "florence2"])
            found = parse_answer(text, format, **options)
            monkeypatch.setattr(parser, "plain_answer", lambda *_: None)
            assert found == parse_answer(text, format, **options), (text, format, options)
            monkeypatch.setattr(parser, "plain_answer", short_cut)
            taken += short_cut(text, format, *_arguments(options)) is not None
    assert taken


def _arguments(options):
    scale = parser._resolve_scale(options.get("scale"), options.get("image_size"), parser.CoordGrid())
    keys = parser._keys("box", "json", tuple(parser.FORMATS))
    return scale, parser.token_units(parser.CoordGrid()), keys, parser._UNUSUAL


@pytest.mark.parametrize("style", ["json", "markers"])
def test_well_formed_answer_takes_the_short_cut(style):
    draw = random.Random(0)
    objects = [{"desc": "cat", "bbox": [0.1, 0.1, draw.uniform(0.2, 1), draw.uniform(0.2, 1)]} for _ in range(9)]
    text = encode_target(Instance(image="a.jpg", objects=objects), style=style, form="tokens")
    assert parser.plain_answer(text, "auto", *_arguments({})) is not None


@pytest.mark.parametrize(
    "text",
    [
        "<loc0001><loc0002><loc0300><loc0400> cat ; <loc0001><loc0002><loc0300><loc0400> red car",
        "cat<loc_1><loc_2><loc_300><loc_400>red car<loc_1><loc_2><loc_300><loc_400>",
    ],
)
def test_tokens_and_labels_alone_take_the_short_cut(text):
    found = parser.plain_answer(text, "auto", *_arguments({}))
    assert found is not None and [item.desc for item in found] == ["cat", "red car"]


def test_every_format_by_pattern_needs_a_mark_that_no_plain_answer_contains():
    patterns = [row for row in parser.FORMATS.values() if row.pattern]
    assert all("<" in piece for row in patterns for piece in row.needs) and all(row.needs for row in patterns)
