"""Weight files: shards and index, types, a disk that fails, values that overflow."""

import errno
import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_checkpoint import make_adapter, merge_in, merge_quietly, read_all, read_json

from coord_exporter import ExportError
from coord_exporter.checkpoint import write
from coord_exporter.checkpoint.read import ITEM_BYTES, open_checkpoint, read_safetensors


def check_index(out):
    index = read_json(out / "model.safetensors.index.json")
    names = sorted(path.name for path in out.glob("*.safetensors"))
    assert sorted(set(index["weight_map"].values())) == names

    held = {}
    for name in names:
        with safe_open(out / name, "pt") as file:
            assert file.metadata() == {"format": "pt"}
            held |= dict.fromkeys(file.keys(), name)
    assert index["weight_map"] == held
    tensors = read_all(out)
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
    if "total_parameters" in index["metadata"]:
        assert index["metadata"]["total_parameters"] == sum(t.numel() for t in tensors.values())
    return names


def test_shards_are_those_of_the_base(sharded, tmp_path):
    merge_in(sharded, tmp_path / "out")
    names = check_index(tmp_path / "out")
    assert len(names) > 2 and names == sorted(p.name for p in (sharded / "base").glob("*.safetensors"))
    # A file of which no tensor changes type or shape keeps its header, one that is not adapted every byte.
    same = [n for n in names if (tmp_path / "out" / n).read_bytes() == (sharded / "base" / n).read_bytes()]
    assert 0 < len(same) < len(names)


def test_tensors_that_fill_a_shard_to_its_last_byte_share_it():
    rows = [SimpleNamespace(nbytes=size, dtype="BF16") for size in (4, 6, 1, 2, 12, 9)]
    assert [[row.nbytes for row in shard] for shard in write._split(rows, 10)] == [[4, 6], [1, 2], [12], [9]]


def test_file_without_a_change_of_types_keeps_the_very_bytes_of_its_header(bases, adapters, tmp_path):
    """As another program wrote them, with its metadata, spaces and order of keys."""
    base = shutil.copytree(bases(False), tmp_path / "base")
    file = read_safetensors(base / "model.safetensors")
    data = (base / "model.safetensors").read_bytes()[len(file.header) :]
    entries = json.loads(file.header[8:]) | {"__metadata__": {"format": "pt", "of": "another program"}}
    text = json.dumps(dict(reversed(entries.items()))).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    (base / "model.safetensors").write_bytes(header + data)
    merge_quietly(base, adapters / "offsets", tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes().startswith(header)
    merge_quietly(base, adapters / "offsets", tmp_path / "other", dtype="float32")
    other = read_safetensors(tmp_path / "other" / "model.safetensors")
    assert other.metadata == {"format": "pt", "of": "another program"}
    merge_quietly(base, adapters / "offsets", tmp_path / "split", max_shard_size=10**9)
    assert read_safetensors(tmp_path / "split" / "model.safetensors").metadata == other.metadata
    stored = open_checkpoint(tmp_path / "other")
    names = [tensor.name for tensor in other.tensors]
    assert [*replace(stored, modules={names[0]: "another"}).tensors] == ["another", *names[1:]]


@pytest.mark.parametrize(("size", "least"), [(90_000, 5), (300_000, 2), (10**9, 1)])
def test_shards_of_a_given_size(sharded, tmp_path, size, least):
    merge_in(sharded, tmp_path / "out", max_shard_size=size)
    merge_in(sharded, tmp_path / "reference")
    one, other = read_all(tmp_path / "out"), read_all(tmp_path / "reference")
    assert one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)
    if least == 1:
        assert [p.name for p in (tmp_path / "out").glob("model*")] == ["model.safetensors"]
        return
    names = check_index(tmp_path / "out")
    assert len(names) >= least and names[0] == f"model-00001-of-{len(names):05d}.safetensors"
    for name in names:
        file = load_file(tmp_path / "out" / name)
        assert len(file) == 1 or sum(t.nbytes for t in file.values()) <= size


@pytest.mark.slow
def test_shards_keep_mixed_types_aligned(tmp_path, bases):
    shutil.copytree(bases(False), tmp_path / "base")
    extra = {"a.odd": torch.ones(3, dtype=torch.uint8), "z.wide": torch.ones(5, dtype=torch.float64)}
    extra |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4)}
    tensors = read_all(tmp_path / "base") | extra
    save_file(tensors, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    make_adapter(tmp_path / "adapter", bases(False), "tied")
    for size in (None, 200_000):
        merge_in(tmp_path, tmp_path / f"out{size}", max_shard_size=size)
        found = read_all(tmp_path / f"out{size}")
        assert all(torch.equal(found[name], extra[name]) for name in extra)
        for path in (tmp_path / f"out{size}").glob("*.safetensors"):
            stored = read_safetensors(path)
            assert all(t.start % ITEM_BYTES[t.dtype] == 0 for t in stored.tensors) and len(stored.header) % 8 == 0


@pytest.mark.parametrize("failing", ["pwrite", "copy_file_range", "fsync"])
def test_write_fails_without_a_trace_when_the_disk_is_full(bases, adapters, tmp_path, monkeypatch, failing):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(ExportError, match="the disk is full; nothing was written"):
        merge_quietly(bases(True), adapters / "of-tied", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_write_without_kernel_copies(bases, adapters, tmp_path, monkeypatch):
    def declines(*arguments):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    merge_quietly(bases(True), adapters / "of-tied", tmp_path / "one")
    monkeypatch.setattr(os, "copy_file_range", declines)
    merge_quietly(bases(True), adapters / "of-tied", tmp_path / "other")
    name = "model.safetensors"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_write_refuses_merged_values_that_overflow(bases, tmp_path):
    make_adapter(tmp_path / "adapter", bases(False, "float16"), lora_alpha=1e8)
    with pytest.raises(ExportError, match=r"_proj.weight: row \d+ is not finite in F16"):
        merge_quietly(bases(False, "float16"), tmp_path / "adapter", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]
