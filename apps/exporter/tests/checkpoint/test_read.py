"""Reading checkpoints by their headers: as the safetensors library writes them, and every damage named."""

import json
import shutil
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tiny_checkpoint import ADAPTER_WEIGHTS, edit_json, make_base, read_json, refused

from coord_adapter import weights_digest
from coord_exporter import InputError
from coord_exporter.checkpoint.read import open_checkpoint, read_safetensors


@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=6),
    dtypes=st.lists(st.sampled_from([torch.float32, torch.bfloat16, torch.uint8, torch.int64]), min_size=6, max_size=6),
)
def test_read_safetensors_reads_headers_of_the_library(tmp_path_factory, shapes, dtypes):
    path = tmp_path_factory.mktemp("h") / "f.safetensors"
    tensors = {f"t{i}": torch.ones(s, dtype=d) * i for i, (s, d) in enumerate(zip(shapes, dtypes, strict=False))}
    save_file(tensors, path, metadata={"format": "pt"})
    file = read_safetensors(path)
    assert file.metadata == {"format": "pt"} and file.size == path.stat().st_size
    data = path.read_bytes()
    for info in file.tensors:
        tensor = tensors[info.name]
        assert info.shape == tuple(tensor.shape) and info.nbytes == tensor.nbytes
        assert data[info.start : info.start + info.nbytes] == bytes(tensor.flatten().view(torch.uint8).tolist())


@pytest.mark.parametrize("which", ["base/model.safetensors", f"adapter/{ADAPTER_WEIGHTS}"])
def test_read_safetensors_refuses_truncated_weights(files, which):
    data = (files / which).read_bytes()
    (files / which).write_bytes(data[:-1000])
    refused(files, f"{which}: {WHOLE}")


def stored(content):
    header = content if isinstance(content, bytes) else json.dumps({"a": content}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(12)


WHOLE = "expected a whole safetensors file: .*; fetch it again"
TENSOR = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
DAMAGED = [
    *((content, WHOLE) for content in (b"", b"12345", struct.pack("<Q", 1 << 60) + b"{}", stored(b"not json!"))),
    *((stored(TENSOR | {key: value}), WHOLE) for key, value in (
        ("data_offsets", [4, 12]), ("shape", [2.0]), ("shape", [-1, -2]), ("dtype", ["F32"]), ("shape", [2])
    )),
    *((content, WHOLE) for content in (stored(None), stored(b'{"__metadata__": ' + b"[" * 100_000))),
    *((content, WHOLE) for content in (stored(TENSOR)[:-1], stored(TENSOR) + b"1")),
    (stored(TENSOR | {"dtype": "F8_E8M0", "shape": [12]}), "tensor a: expected BF16, .*, found F8_E8M0"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "match"), DAMAGED)
def test_read_safetensors_refuses_other_and_damaged_files(files, content, match):
    (files / "base" / "model.safetensors").write_bytes(content)
    refused(files, f"model.safetensors: .*{match}")


@pytest.mark.parametrize(
    "changes", [*({"text_config": v} for v in (None, [], "text")), {"quantization_config": {"a": 1}}]
)
def test_open_checkpoint_refuses_configurations_that_cannot_be_merged(files, changes):
    edit_json(files / "base" / "config.json", **changes)
    refused(files, f"config.json: {next(iter(changes))}: (expected an object|a quantised base)")


def test_open_checkpoint_refuses_missing_shard(files, tmp_path):
    shutil.rmtree(files / "base")
    make_base(files / "base", False, torch.bfloat16, max_shard_size="100KB")
    first = sorted((files / "base").glob("model-*.safetensors"))[0]
    first.unlink()
    refused(files, f"{first.name}: the index names this file and it is missing")


def test_open_checkpoint_refuses_an_index_that_names_another_kind_of_file(files):
    path = files / "base" / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"lm_head.weight": "merges.txt"}}))
    (files / "base" / "merges.txt").write_text("#version: 0.2\na b\n")
    refused(files, "merges.txt")


def test_open_checkpoint_refuses_an_index_that_disagrees_with_the_shards(files):
    shutil.rmtree(files / "base")
    make_base(files / "base", False, torch.bfloat16, max_shard_size="100KB")
    path = files / "base" / "model.safetensors.index.json"
    index = read_json(path)
    index["weight_map"]["lm_head.weights"] = index["weight_map"]["lm_head.weight"]
    path.write_text(json.dumps(index))
    refused(files, "index.json: .* does not contain the tensor lm_head.weights")
    own = index["weight_map"].pop("lm_head.weights")
    name, other = next((name, file) for name, file in index["weight_map"].items() if file != own)
    index["weight_map"] |= {"lm_head.weight": other, name: own}  # both files stay named
    path.write_text(json.dumps(index))
    refused(files, f"index.json: {other} does not contain the tensor lm_head.weight")


def test_open_checkpoint_refuses_pickles(files):
    (files / "base" / "model.safetensors").rename(files / "base" / "pytorch_model.bin")
    refused(files, "found only pytorch_model.bin .safetensors only")


def test_open_checkpoint_refuses_shards_beside_a_single_file(sharded, bases, tmp_path):
    """transformers loads the single file: whichever is older, the other one would be merged in silence."""
    folder = shutil.copytree(sharded / "base", tmp_path / "both")
    shutil.copy(bases(True) / "model.safetensors", folder)
    with pytest.raises(InputError, match=r"holds model.safetensors, .* model.safetensors.index.json of other files"):
        open_checkpoint(folder)
    assert weights_digest(folder) == weights_digest(bases(True))


@pytest.mark.parametrize(
    ("index", "match"),
    [
        ({}, "expected a weight_map"),
        ({"weight_map": {}}, "expected a weight_map"),
        ({"weight_map": ["a"]}, "expected a weight_map"),
        ({"weight_map": {"a": 1}}, "expected a weight_map"),
        ({"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}, "does not contain the tensor b"),
        ({"weight_map": {"a": "model.safetensors"}, "metadata": [1]}, "metadata: expected an object"),
        ({"weight_map": {"a": "model.safetensors", "c": "../model.safetensors"}}, "the index names this file"),
        ({"weight_map": {"a": "model.safetensors", "c": "other.safetensors"}}, "tensor a is also in model.safetensors"),
        ({"weight_map": {"a": "model.safetensors"}}, None),  # of a single file: transformers writes none, others do
        ({"weight_map": {"a": "model.safetensors"}, "metadata": None}, None),
    ],
)
def test_index_says_of_each_tensor_which_file_has_it(tmp_path, index, match):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for place in (folder / "model.safetensors", tmp_path / "model.safetensors"):
        save_file({"a": torch.ones(2)}, place)
    save_file({"a": torch.ones(2), "c": torch.ones(3)}, folder / "other.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    if match is None:
        assert [*open_checkpoint(folder).tensors] == ["a"]
        return
    with pytest.raises(InputError, match=match):
        open_checkpoint(folder)
