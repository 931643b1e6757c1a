"""The digest of a checkpoint's weights: tensors of a large file are read in part, up to the last byte."""

import json

import pytest

from coord_codec.weights import _INTERVAL, _READ, weights_digest


def digest_of(folder, content, name="w", dtype="U8"):
    folder.mkdir(exist_ok=True)
    header = json.dumps({name: {"dtype": dtype, "shape": [len(content)], "data_offsets": [0, len(content)]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content)
    return weights_digest(folder)


@pytest.mark.parametrize("size", [1, _INTERVAL, _INTERVAL + 1, 2 * _INTERVAL + _READ // 2, 3 * _INTERVAL])
def test_every_byte_that_is_read_is_in_the_digest_and_the_last_one_always(tmp_path, size):
    content = bytes(size)
    digests = {
        digest_of(tmp_path, content),
        digest_of(tmp_path, content, "v"),
        digest_of(tmp_path, content, dtype="I8"),
    }
    places = {0, size - 1, *range(0, size, _INTERVAL), *(n - 1 for n in range(_READ, size, _INTERVAL))}
    for place in places:
        digests.add(digest_of(tmp_path, content[:place] + b"\1" + content[place + 1 :]))
    assert len(digests) == 3 + len(places)
