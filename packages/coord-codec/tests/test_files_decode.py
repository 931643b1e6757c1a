"""`decode_json` against Python's own decoder."""

import json
import random
import struct

import pytest

from coord_codec.files import decode_json

WHOLE = r'{"a": [1, -0, "x\né", null, true], "b": {"a": 1.5e-7, "a": 2}}'
LETTERS = '[]{}",:\\u0d8ec\n\t\x01 1-+.eEtruefalsnul é/\x7f'


def decoded(decode, text):
    """Return the type of the error, or the value with its types and every bit of its numbers (repr is exact)."""
    try:
        return repr(decode(text))
    except ValueError:
        return ValueError


def test_numbers_have_the_same_bits():
    draw = random.Random(0)
    for _ in range(20_000):
        digits = "".join(draw.choices("0123456789", k=draw.randint(1, 25)))
        number = draw.choice(["-", ""]) + digits + draw.choice(["", ".", f".{digits[::-1]}"])
        number += draw.choice(["", "e", f"E+{draw.randint(0, 400)}", f"e-{draw.randint(0, 400)}"])
        bits = repr(struct.unpack("d", draw.randbytes(8))[0])
        for text in (number, bits, f"[{number}, {bits}]"):
            assert decoded(decode_json, text) == decoded(json.loads, text), text


def test_damaged_documents_are_refused_alike():
    draw = random.Random(0)
    for _ in range(20_000):
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
