"""Lists of a JSON document element by element: what `json.loads` finds, however the file is cut."""

import json

import pytest

from coord_codec import InputError, json_stream
from coord_codec.json_stream import stream_lists

DOCUMENT = {
    "info": {"a": [1, {"b": "]}"}], "year": 2017},
    "empty": [],
    "images": [{"id": 1, "name": 'ä"\\ü€😀'}, {"id": -2.5e3}, 12345, "text, }", None, True, [[1], {}]],
    "number": 17,
    "images ": [{}],
}


def expected(document):
    for key, value in document.items():
        if isinstance(value, list) and value:
            yield from ((key, position, element) for position, element in enumerate(value))
        else:
            yield key, -1, value or None


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"ensure_ascii": False, "separators": (",", ":")}])
def test_stream_lists_equals_json_loads_wherever_blocks_end(tmp_path, monkeypatch, block, layout):
    monkeypatch.setattr(json_stream, "_BLOCK", block)
    (tmp_path / "a.json").write_text(json.dumps(DOCUMENT, **layout) + "\n", "utf-8-sig")
    assert list(stream_lists(tmp_path / "a.json")) == list(expected(DOCUMENT))
    (tmp_path / "a.json").write_text(" {} ")
    assert list(stream_lists(tmp_path / "a.json")) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected {, found the end"),
        ("[1]", r"expected {, found \["),
        ('{"a": [1, 2', "expected , or ]"),
        ('{"a": [1 2]}', "expected , or ], found 2"),
        ('{"a": [{"b": }]}', "expected a value"),
        ('{"a": [], }', "expected a value"),
        ('{"a" 1}', "expected :, found 1"),
        ("{1: 2}", "expected a key"),
        ('{"a": 1} x', "after the end"),
        ('{"a": [' + "[" * 100_000, "recursion"),
    ],
)
def test_stream_lists_names_what_is_no_json(tmp_path, text, told):
    (tmp_path / "a.json").write_text("\n" * 4 + text)
    with pytest.raises(InputError, match=f"a.json, line 5: not JSON .*{told}"):
        list(stream_lists(tmp_path / "a.json"))


def test_stream_lists_names_other_encodings_and_missing_files(tmp_path):
    (tmp_path / "a.json").write_bytes('{"a": ["ä"]}'.encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        list(stream_lists(tmp_path / "a.json"))
    with pytest.raises(InputError, match="cannot be read"):
        list(stream_lists(tmp_path / "b.json"))
