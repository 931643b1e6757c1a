"""Every bad input: a message that names the file or the field, and nothing written."""

import json
import shutil
import struct

import pytest
import torch
from export_tiny import make_adapter, make_base, read_all, read_json
from safetensors.torch import save_file

from coord_codec import CoordGrid, CoordVocab
from coord_exporter import InputError, merge

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def adapters(bases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    make_adapter(folder / "offsets", bases(False), "separate")
    make_adapter(folder / "dora", bases(False), "tied", use_dora=True)
    return folder


@pytest.fixture
def files(bases, adapters, tmp_path):
    """Copies of a base and an adapter that a test may spoil."""
    shutil.copytree(bases(False), tmp_path / "in" / "base")
    shutil.copytree(adapters / "offsets", tmp_path / "in" / "adapter")
    return tmp_path / "in"


def refused(files, match, adapter=None, out=None):
    out = out or files.parent / "out"
    before = sorted(p.relative_to(files.parent) for p in files.parent.rglob("*"))
    with pytest.raises(InputError, match=match) as caught:
        merge(files / "base", adapter or files / "adapter", out, verify=False, quiet=True)
    assert "\n" not in str(caught.value)
    assert sorted(p.relative_to(files.parent) for p in files.parent.rglob("*")) == before


def edit_config(folder, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(read_json(path) | changes))


def edit_tensors(folder, change):
    tensors = read_all(folder)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def offset_key(name):
    return f"base_model.model.coord_offset_adapter.{name}"


def test_the_fixture_itself_merges(files):
    merge(files / "base", files / "adapter", files.parent / "out", verify=False, quiet=True)


@pytest.mark.parametrize("which", ["base/model.safetensors", f"adapter/{WEIGHTS}"])
def test_truncated_weights(files, which):
    data = (files / which).read_bytes()
    (files / which).write_bytes(data[:-1000])
    refused(files, f"{which}.*promises {len(data)} bytes.*{len(data) - 1000}: truncated")


@pytest.mark.parametrize(
    "head", [b"", b"12345", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 9) + b"not json!"]
)
def test_not_safetensors(files, head):
    (files / "base" / "model.safetensors").write_bytes(head)
    refused(files, "model.safetensors: (expected a safetensors file|the safetensors header is damaged)")


def test_header_that_lies_about_offsets(files):
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}).encode()
    (files / "base" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
    refused(files, "header is damaged .tensor a does not lie")


def test_missing_shard(files, tmp_path):
    shutil.rmtree(files / "base")
    make_base(files / "base", False, torch.bfloat16, max_shard_size="100KB")
    first = sorted((files / "base").glob("model-*.safetensors"))[0]
    first.unlink()
    refused(files, f"{first.name}: the index names this file and it is missing")


def test_index_and_shards_disagree(files):
    shutil.rmtree(files / "base")
    make_base(files / "base", False, torch.bfloat16, max_shard_size="100KB")
    path = files / "base" / "model.safetensors.index.json"
    index = read_json(path)
    index["weight_map"]["lm_head.weights"] = index["weight_map"]["lm_head.weight"]
    path.write_text(json.dumps(index))
    refused(files, "index.json: .* does not hold the tensor lm_head.weights")


def test_pickled_base(files):
    (files / "base" / "model.safetensors").rename(files / "base" / "pytorch_model.bin")
    refused(files, "found only pytorch_model.bin .safetensors only")


def test_pickled_adapter(files):
    (files / "adapter" / WEIGHTS).rename(files / "adapter" / "adapter_model.bin")
    refused(files, f"{WEIGHTS}: missing")


@pytest.mark.parametrize("name", ["base", "adapter"])
def test_folder_missing(files, name):
    shutil.rmtree(files / name)
    refused(files, f"{name}: expected an? .* folder, found nothing")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_adapter_with_nan(files, value):
    def spoil(tensors):
        next(t for n, t in tensors.items() if "lora_B" in n)[3, 1] = value

    edit_tensors(files / "adapter", spoil)
    refused(files, "lora_B.weight: row 3 holds NaN or infinity")


@pytest.mark.parametrize(("token_id", "match"), [(99999, "id 99999 is outside"), (-1, "id -1 is outside")])
def test_ids_outside_the_vocabulary(files, token_id, match):
    edit_tensors(files / "adapter", lambda tensors: tensors[offset_key("token_ids")].__setitem__(5, token_id))
    refused(files, f"token_ids: {match} the vocabulary")


def test_repeated_ids(files):
    edit_tensors(files / "adapter", lambda tensors: tensors[offset_key("token_ids")].__setitem__(5, 300))
    edit_tensors(files / "adapter", lambda tensors: tensors[offset_key("token_ids")].__setitem__(6, 300))
    refused(files, "token_ids: id 300 is there twice")


def test_offsets_saved_without_gathering(files):
    def spoil(tensors):
        tensors[offset_key("embed_offset")] = torch.zeros(0, 64)

    edit_tensors(files / "adapter", spoil)
    refused(files, "embed_offset: expected 1000 rows .* found F32 .0, 64.*ZeRO-3")


def test_offset_part_missing(files):
    edit_tensors(files / "adapter", lambda tensors: tensors.pop(offset_key("head_offset")))
    refused(files, "offset tables lack head_offset")


def test_adapter_of_another_width(files):
    shutil.rmtree(files / "base")
    make_base(files / "base", False, torch.bfloat16, hidden=96)
    refused(files, "do not fit the base's weight .* trained on another base")


def test_adapter_of_another_architecture(files):
    def rename(tensors):
        for name in [n for n in tensors if "self_attn.q_proj" in n]:
            tensors[name.replace("q_proj", "query")] = tensors.pop(name)

    edit_tensors(files / "adapter", rename)
    refused(
        files,
        "2 of 14 adapted tensors are not in .*self_attn.query.weight; was the adapter trained on another",
    )


def test_saved_table_of_another_vocabulary(files):
    def add(tensors):
        tensors["base_model.model.model.language_model.embed_tokens.weight"] = torch.ones(7, 64)

    edit_tensors(files / "adapter", add)
    refused(files, r"embed_tokens.weight is F32 \[7, 64\]")


def test_fingerprint_of_another_grid(files, bases):
    other = CoordVocab(269, CoordGrid(bins=1000, scale=999)).fingerprint("qwen")
    make_adapter(files / "adapter", bases(False), "tied", fingerprint=other)
    refused(files, f"fingerprint {other}: the base's tokenizer has another grid")


def test_fingerprint_and_a_base_without_coordinates(files, bases):
    from export_tiny import make_processor, make_tokenizer

    make_processor(make_tokenizer(expanded=False)).save_pretrained(files / "base")
    refused(files, "the base's tokenizer has no coordinate tokens")


CONFIGS = {
    "peft_type": "IA3",
    "init_lora_weights": "pissa",
    "use_qalora": True,
    "layer_replication": [[0, 1]],
    "target_parameters": ["experts.w"],
    "a_setting_of_next_year": 3,
    "r": "many",
    "rank_pattern": {"q_proj": 0},
    "alpha_pattern": {"q_(proj": 1},
    "modules_to_save": "lm_head",
    "use_dora": True,
    "lora_bias": True,
}


@pytest.mark.parametrize("field", CONFIGS)
def test_settings_that_cannot_be_merged(files, field):
    edit_config(files / "adapter", **{field: CONFIGS[field]})
    match = (
        "not a complete LoRA" if field in ("r", "rank_pattern", "alpha_pattern", "modules_to_save") else field
    )
    refused(files, match)


def test_other_rank_than_the_configuration_says(files):
    edit_config(files / "adapter", r=4)
    refused(files, "of rank 4 do not fit")


@pytest.mark.parametrize("module", ["lm_head", "model.language_model.embed_tokens"])
def test_dora_on_a_table(files, adapters, module):
    shutil.copytree(adapters / "dora", files / "dora")

    def add(tensors):
        rows = 1344
        start = f"base_model.model.{module}.lora_"
        names = ("embedding_A", "embedding_B") if "embed" in module else ("A.weight", "B.weight")
        tensors[start + names[0]] = torch.ones(8, rows if "embed" in module else 64)
        tensors[start + names[1]] = torch.ones(64 if "embed" in module else rows, 8)
        tensors[f"base_model.model.{module}.lora_magnitude_vector"] = torch.ones(rows)

    edit_tensors(files / "dora", add)
    refused(files, f"{module}: DoRA on the embedding or the head cannot be merged exactly", files / "dora")


def test_unknown_factor(files):
    edit_tensors(files / "adapter", lambda t: t.update({"base_model.model.x.lora_E.weight": torch.ones(2)}))
    refused(files, "lora_E.weight: an unknown kind of factor")


def test_half_a_pair(files):
    edit_tensors(files / "adapter", lambda tensors: tensors.pop(next(n for n in tensors if "lora_A" in n)))
    refused(files, "a LoRA factor is missing")


def test_quantized_base(files):
    path = files / "base" / "config.json"
    path.write_text(json.dumps(read_json(path) | {"quantization_config": {"quant_method": "gptq"}}))
    refused(files, "config.json: quantization_config")


def test_damaged_tokenizer(files):
    (files / "base" / "tokenizer.json").write_text('{"model": {"vocab": {}}, "added_tokens": [{"id": 3}]}')
    refused(files, "the tokenizer files are damaged .KeyError")


def test_head_that_is_nowhere(files):
    tensors = read_all(files / "base")
    tensors.pop("lm_head.weight")
    save_file(tensors, files / "base" / "model.safetensors", metadata={"format": "pt"})
    refused(files, "tie_word_embeddings is false and lm_head.weight is not stored")


@pytest.mark.parametrize("place", ["base/out", "adapter/deep/out", "base", "adapter", "."])
def test_out_inside_on_or_around_an_input(files, place):
    refused(files, "lies inside, around or on the input", out=files / place)


def test_out_behind_a_link_into_the_base(files, tmp_path):
    (tmp_path / "link").symlink_to(files / "base")
    refused(files, "lies inside, around or on", out=tmp_path / "link" / "out")


def test_out_without_a_parent(files):
    refused(files, "does not exist; create it first", out=files.parent / "no" / "out")


def test_disk_too_small(files, monkeypatch):
    usage = shutil.disk_usage(files)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    refused(files, "needs 0.02 GB and the disk has 0.00 GB free")
