"""Reading and writing of files, and `decode_json` against Python's own decoder."""

import bz2
import gzip
import json
import lzma
import struct

import pytest

from coord_codec import InputError, read_annotations, read_instances
from coord_codec.files import decode_json, identifier, path_inside, read_json, read_json_lines, read_text, write_text
from coord_codec.json_stream import stream_lists

WHOLE = r'{"a": [1, -0, "x\né", null, true], "b": {"a": 1.5e-7, "a": 2}}'
LETTERS = '[]{}",:\\u0d8ec\n\t\x01 1-+.eEtruefalsnul é/\x7f'


def decoded(decode, text):
    """Return the type of the error, or the value with its types and every bit of its numbers (repr is exact)."""
    try:
        return repr(decode(text))
    except ValueError:
        return ValueError


def test_numbers_have_the_same_bits(fuzz):
    draw = fuzz.draw
    for _ in fuzz.times(20_000):
        digits = "".join(draw.choices("0123456789", k=draw.randint(1, 25)))
        number = draw.choice(["-", ""]) + digits + draw.choice(["", ".", f".{digits[::-1]}"])
        number += draw.choice(["", "e", f"E+{draw.randint(0, 400)}", f"e-{draw.randint(0, 400)}"])
        bits = repr(struct.unpack("d", draw.randbytes(8))[0])
        for text in (number, bits, f"[{number}, {bits}]"):
            assert decoded(decode_json, text) == decoded(json.loads, text), text


def test_damaged_documents_are_refused_alike(fuzz):
    draw = fuzz.draw
    for _ in fuzz.times(20_000):
        letters = list(WHOLE)
        for _ in range(draw.randint(1, 3)):
            letters[draw.randrange(len(letters))] = draw.choice(LETTERS)
        text = "".join(letters)
        assert decoded(decode_json, text) == decoded(json.loads, text), text


@pytest.mark.parametrize("text", ['["\\ud800"]', '["\ud800"]', "[" * 500 + "]" * 500, "NaN", "-Infinity", "1e999"])
def test_what_only_pythons_own_decoder_reads(text):
    assert repr(decode_json(text)) == repr(json.loads(text))


def test_an_error_says_where():
    with pytest.raises(json.JSONDecodeError, match="line 2 column 3"):
        decode_json('{\n  a": 1}')


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, lambda data: b"PK\x03\x04" + data])
@pytest.mark.parametrize(
    "read",
    [
        read_json,
        lambda path: list(read_json_lines(path)),
        lambda path: list(stream_lists(path)),
        read_annotations,
        read_instances,
    ],
    ids=["read_json", "read_json_lines", "stream_lists", "read_annotations", "read_instances"],
)
def test_files_that_are_packed_are_named_as_archives(tmp_path, pack, read):
    path = tmp_path / "a.jsonl"
    path.write_bytes(pack(b'{"images": ["\xc3\xa4\xff"]}\n' * 9))
    with pytest.raises(InputError, match=r"a\.jsonl: an archive; unpack it"):
        read(path)


def test_byte_order_mark_before_a_blank_line_is_no_record(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\r\n{"image": "a.jpg", "objects": []}\r\n')
    assert [number for number, _ in read_json_lines(path)] == [2]
    assert len(read_instances(path, strict=True).instances) == len(read_annotations(path, strict=True).instances) == 1
    path.write_bytes(b"\xef\xbb\xbf")
    assert list(read_json_lines(path)) == [] and read_annotations(path, strict=True).instances == ()


def test_name_of_the_longest_length_in_bytes_is_written(tmp_path):
    path = tmp_path / ("\N{CAT FACE}" * 60 + ".json")
    write_text(path, "text")
    assert path.read_text() == "text" and list(tmp_path.iterdir()) == [path]


def test_every_kind_of_line_end_is_one(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\rb\r\nc\n\rd")
    assert read_text(tmp_path / "a") == "a\nb\nc\n\nd"


@pytest.mark.parametrize("name", ["../images2/a.png", "..", "../..", "/etc/passwd", "link/a.png", "sub/../../b"])
def test_path_outside_its_folder_is_refused_also_beside_it(tmp_path, name):
    for folder in ("images/sub", "images2"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "images/link").symlink_to(tmp_path / "images2")
    with pytest.raises(InputError, match="lies outside the folder"):
        path_inside(tmp_path / "images", name)
    for inside in ("a.png", "sub/../a.png", "."):
        assert path_inside(tmp_path / "images", inside).is_relative_to(tmp_path / "images")


def test_half_a_surrogate_pair_is_written_as_a_question_mark(tmp_path):
    write_text(tmp_path / "new" / "er" / "a", "x\ud800y")
    assert (tmp_path / "new" / "er" / "a").read_text() == "x?y"


@pytest.mark.parametrize(
    ("value", "found"),
    [("a", "a"), (7, 7), (0, 0), (7.0, 7), (True, None), (7.5, None), (None, None), (float("inf"), None)],
)
def test_id_is_a_whole_number_or_text(value, found):
    if found is None:
        with pytest.raises(InputError, match="x: expected a whole number or text"):
            identifier(value, "x")
    else:
        assert repr(identifier(value, "x")) == repr(found)


@pytest.mark.parametrize(
    "begin",
    [b"PK\3\4", b"\x1f\x8b\x08", b"BZh9", b"7z\xbc\xaf\x27\x1c", b"\xfd7zXZ\0", b"Rar!\x1a\x07", b"\x28\xb5\x2f\xfd"],
)
def test_every_kind_of_archive_is_named(tmp_path, begin):
    (tmp_path / "a").write_bytes(begin + b"\xff" * 9)
    for read in (read_json, lambda path: list(read_json_lines(path)), lambda path: list(stream_lists(path))):
        with pytest.raises(InputError, match="an archive; unpack it"):
            read(tmp_path / "a")
