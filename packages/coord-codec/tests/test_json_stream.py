"""Lists of a JSON document element by element: what `json.loads` finds, however the file is cut."""

import json

import pytest

from coord_codec import InputError, json_file, json_stream
from coord_codec.json_file import JsonFile
from coord_codec.json_numbers import NumberRows
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
        ('{"a": 1', "expected , or }, found the end"),
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


ROWS = {
    "as Python writes them": ('{"id": 1, "bbox": [1, 2.5]}, {"id": 22, "bbox": [-3e-05, 4.0]}', 2),
    "compact": ('{"id":1,"bbox":[1,2.5]},{"id":22,"bbox":[3,4.0]},{"id":-3,"bbox":[0,0]}', 3),
    "indented": ('{\n  "id": 1\n },\n {\n  "id": 2\n }', 2),
    "one": ('{"id": 1, "score": 0.5}', 1),
    "exponents": ('{"s": 1e-7}, {"s": 12e-12}', 2),
    "exponents without a sign": ('{"s": 1e7}, {"s": 2e7}', 0),
    "exponents in one row": ('{"s": 1.5}, {"s": 2E-7}', 0),
    "a key after a list": ('{"b": [1, 2], "id": 3}, {"b": [4, 5], "id": 6}', 2),
    "of 70 bits": ('{"id": 1180591620717411303424}, {"id": 2}', 2),
    "another order": ('{"id": 1, "s": 2}, {"s": 2, "id": 1}', 0),
    "another key": ('{"id": 1}, {"di": 1}', 0),
    "a digit in a key": ('{"id":1},{"id2":1}', 0),
    "a dash in a key": ('{"id": 1}, {"-id": 1}', 0),
    "white space in a key": ('{"id": 1}, {"id ":1}', 0),
    "a longer list": ('{"b": [1, 2]}, {"b": [1, 2, 3]}', 0),
    "nested": ('{"b": [[1, 2]]}, {"b": [[1, 2]]}', 0),
    "true": ('{"b": true}, {"b": true}', 0),
    "null": ('{"b": 1}, {"b": null}', 0),
    "NaN": ('{"b": NaN}, {"b": NaN}', 0),
    "text": ('{"b": "1"}, {"b": "2"}', 0),
    "twice the key": ('{"b": 1}, {"b": 2, "b": 3}', 0),
    "an escaped key": ('{"b": 1}, {"\\u0062": 2}', 0),
    "no number": ('{"b": 1}, {"b": }', 0),
    "two numbers": ('{"b": 1}, {"b": 1 2}', 0),
    "a leading zero": ('{"b": 1}, {"b": 02}', 0),
    "no comma": ('{"b": 1} {"b": 2}', 0),
}


@pytest.mark.parametrize("text, count", ROWS.values(), ids=ROWS)
def test_rows_of_numbers_are_those_of_json_and_others_are_none(text, count):
    rows = NumberRows.of(text)
    assert (rows is not None) == (count > 0)
    if rows is not None:
        expected = json.loads(f"[{text}]")
        assert (len(rows), list(rows)) == (count, expected)
        assert rows.numbers == [
            n for row in expected for v in row.values() for n in (v if isinstance(v, list) else [v])
        ]
        own = {key for key, width in rows.widths.items() if width is None}
        assert {key: rows.column(key) for key in own} == {key: [row[key] for row in expected] for key in own}
        assert [[*map(type, row.values())] for row in rows] == [[*map(type, row.values())] for row in expected]


def test_line_of_a_fault_is_that_of_the_file_beyond_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "_BLOCK", 64)
    rows = [f'{{"id": {n}, "name": "cat {n}"}}' for n in range(200)]
    rows[150] = '{"id": 150, "name": }'
    (tmp_path / "a.json").write_text('{"annotations": [\n' + ",\n".join(rows) + "\n]}")
    with pytest.raises(InputError, match=r"a\.json, line 152: "):
        list(stream_lists(tmp_path / "a.json"))


def test_file_that_was_read_is_opened_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(json_file, "_HELD", 4)
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"b": 2}\n')
    read, fresh = JsonFile(path), JsonFile(path)
    content = read.content
    path.write_text('{"a": 3}\n')
    assert read.open().read() == content and [number for number, _ in read.rows] == [1, 3]
    assert [row for _, row in fresh.rows] == [{"a": 3}]
