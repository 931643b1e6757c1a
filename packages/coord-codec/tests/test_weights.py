"""The digest of a checkpoint's weights: tensors of a large file are read in part, up to the last byte."""

import json

import pytest

from coord_codec import InputError
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


def test_single_file_precedes_an_index_and_files_of_an_index_are_one_checkpoint(tmp_path):
    alone = digest_of(tmp_path, b"aaaa")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"w": "part.safetensors"}}')
    assert weights_digest(tmp_path) == alone
    (tmp_path / "model.safetensors").rename(tmp_path / "part.safetensors")
    assert weights_digest(tmp_path) == alone
    (tmp_path / "model.safetensors.index.json").unlink()
    assert weights_digest(tmp_path) is None
    (tmp_path / "part.safetensors").rename(tmp_path / "adapter_model.safetensors")
    assert weights_digest(tmp_path) == alone
    for damaged in (
        b"",
        b"\1\0\0\0\0\0\0\0",
        *((8).to_bytes(8, "little") + text for text in (b'{"w": 1}', b"[1, 2,3]")),
    ):
        (tmp_path / "adapter_model.safetensors").write_bytes(damaged)
        with pytest.raises(InputError, match="header is damaged"):
            weights_digest(tmp_path)
