"""What parsing costs, in counted steps and bytes: linear in the text, whatever the text."""

import tracemalloc

import pytest

from coord_eval import FORMATS, parse_answer
from coord_eval.parse import json_format


class CountingText(str):
    """A text that counts the characters that are copied out of it."""

    copied = 0

    def __getitem__(self, key):
        part = super().__getitem__(key)
        self.copied += len(part)
        return part


FAMILIES = {
    "repeated geometry keys": ("{", '"bbox_2d": [1, 2, 3, 4], '),
    "juxtaposed strings": ('{"bbox_2d": ', '"1 2"'),
    "juxtaposed labels": ('{"label": ', '"a"'),
    "open records": ("", "{"),
    "open boxes": ("", '{"bbox_2d": ['),
    "open lists": ('{"bbox_2d": ', "["),
    "numbers": ('{"bbox_2d": [', "1,"),
    "florence boxes": ("", "a<loc_1><loc_2><loc_3><loc_4>"),
    "florence tokens": ("", "a<loc_1>"),
    "paligemma boxes": ("", "<loc0001><loc0002><loc0003><loc0004>a;"),
    "polygons": ("", "a<poly><loc_1>"),
    "markers": ("", "<obj_start>a(1,2),(3,4)"),
    "pairs": ("<obj_start>", "(1,2),"),
    "qwen boxes": ("<|object_ref_start|>a", "<|box_start|>"),
    "stray tokens": ("", "<|coord_1|> "),
    "thoughts": ("", "<think>a</think>"),
    "internvl references": ("", "<ref>a"),
    "internvl boxes": ("<ref>a</ref>", "<box>[[1,2,3,4]]"),
    "internvl numbers": ("<ref>a</ref><box>[[", "1,"),
    "rex tokens": ("<|object_ref_start|>a<|object_ref_end|><|box_start|>", "<1>"),
    "kosmos patches": ("<object>", "<patch_index_0001>"),
    "molmo points": ("<points", ' x1="1" y1="2"'),
    "molmo 2 points": ('<points coords="1', " 1 123 456"),
    "open lists alone": ("", "[1,"),
    "list numbers": ("[", "1, "),
    "lists by label": ("{", '"a": [1, 2, 3, 4], '),
    "labels": ('{"labels": [', '"a",'),
    "sides": ("{", '"x1": 1, "y1": 2, '),
    "nested labels": ("", '{"a": '),
    "lines": ("", "cat: [1, 2, 3, 4]\n"),
    "fields of one line": ("", "label: cat, bbox: [1, 2, 3, 4], "),
    "named sides": ("", "x=1, y=2, "),
    "rows": ("label,x1,y1,x2,y2\n", "cat,1,2,3,4\n"),
    "items": ("bbox:\n", "- 1\n"),
    "per cent": ("", "1%, "),
    "named elements": ("", "<a>1,2,3,4"),
}


def steps(monkeypatch, head, unit, count):
    """Return the characters copied, and the members of every tuple that a record was given."""
    added = [0]

    class Record(json_format.Record):
        def __setattr__(self, name, value):
            added[0] += len(value) if isinstance(value, tuple) else 1
            super().__setattr__(name, value)

    monkeypatch.setattr(json_format, "Record", Record)
    text = CountingText(head + unit * count)
    for format in ("auto", *FORMATS):
        parse_answer(text, format)
    return text.copied + added[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("head", "unit"), FAMILIES.values(), ids=FAMILIES)
def test_parse_answer_steps_double_with_the_text(monkeypatch, head, unit):
    once, twice = (steps(monkeypatch, head, unit, count) for count in (150, 300))
    assert twice <= 2.2 * once + 200


@pytest.mark.exhaustive
@pytest.mark.parametrize("unit", ["{", "[", '{"bbox_2d": [', '{"bbox_2d": [1,'])
def test_parse_answer_memory_of_open_records_is_bounded(unit):
    def peak(count):
        tracemalloc.start()
        answer = parse_answer('{"bbox_2d": ' + unit * count)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size - 400 * len(answer.dropped)

    assert peak(40_000) < 3_000_000


def test_parse_answer_notes_a_repair_once():
    answer = parse_answer('{"bbox_2d": [1, 2, 3, 4], "bbox": [1, 2, 3, 4], "box": [1, 2, 3, 4], "label": "a"}')
    assert answer.objects[0].repairs == ("second_geometry",)


def test_parse_answer_of_too_many_numbers_is_wrong_arity():
    answer = parse_answer('{"polygon": [' + "1, 2, " * 60_000 + '1], "label": "a"}')
    assert [drop.reason for drop in answer.dropped] == ["wrong_arity"]
