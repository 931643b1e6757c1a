"""What lies in OUT beside the weights: companions, record; and the progress shown meanwhile."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_checkpoint import (
    coord_vocab,
    edit_json,
    link_base,
    load,
    make_adapter,
    make_base,
    make_processor,
    make_tokenizer,
    merge_in,
    merge_quietly,
    read_json,
)

from coord_adapter import weights_digest
from coord_exporter import InputError
from coord_exporter.checkpoint.folder import find_companions, history_of
from coord_exporter.checkpoint.read import SafetensorsFile, StoredCheckpoint


def test_companions_come_along_unchanged(sharded, tmp_path):
    report = merge_in(sharded, tmp_path / "out")
    base = {p.name: p for p in (sharded / "base").iterdir() if "safetensors" not in p.name}
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "LICENSE"):
        assert name in base
    for name, path in base.items():
        if name != "config.json":
            assert (tmp_path / "out" / name).read_bytes() == path.read_bytes()
    expected = read_json(sharded / "base" / "config.json")
    expected["tie_word_embeddings"] = expected["text_config"]["tie_word_embeddings"] = False
    assert read_json(tmp_path / "out" / "config.json") == expected
    assert sum("tie_word_embeddings is false" in warning for warning in report.warnings) == 1


@pytest.mark.parametrize(("settings", "told"), [({"head_dim": 24}, True), ({"head_dim": 128}, False)])
def test_size_of_heads_that_vllm_does_not_run_is_told(files, settings, told):
    config = read_json(files / "base" / "config.json")
    edit_json(files / "base" / "config.json", text_config=config["text_config"] | settings)
    warnings = merge_in(files, files / "out").warnings
    assert any("attention heads of 24: vLLM" in warning for warning in warnings) == told


def test_companions_are_copied_through_links_and_others_left_out(sharded, tmp_path):
    base = link_base(sharded / "base", tmp_path / "cache")
    (base / "optimizer.pt").write_bytes(b"state")
    (base / "original").mkdir()
    (base / "original" / "weights.pth").write_bytes(b"old")
    shutil.copy(next(base.glob("*.safetensors")), base / "stray.safetensors")
    (tmp_path / "private.txt").write_text("a key")
    (base / "notes.txt").symlink_to(tmp_path / "private.txt")
    (base / "gone.txt").symlink_to("nowhere")
    (base / "additional_chat_templates").symlink_to(tmp_path)
    report = merge_quietly(base, sharded / "adapter", tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").rglob("*")}
    assert not names & {"stray.safetensors", "notes.txt", "gone.txt", "private.txt", "additional_chat_templates"}
    assert any(
        f"3 links that dangle or leave the folder left out: additional_chat_templates -> {tmp_path}, "
        f"gone.txt -> nowhere, notes.txt -> {tmp_path / 'private.txt'}" in warning
        for warning in report.warnings
    )
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert not (tmp_path / "out" / "optimizer.pt").exists()
    assert any("3 files left out: optimizer.pt, original/weights.pth, stray.safetensors" in w for w in report.warnings)
    assert load(tmp_path / "out").get_output_embeddings().weight is not None


def test_companions_never_overwrite_weights(sharded, tmp_path):
    base = shutil.copytree(sharded / "base", tmp_path / "base")
    index = read_json(base / "model.safetensors.index.json")
    for name in set(index["weight_map"].values()):  # the index may name its files as it likes
        (base / name).rename(base / f"{name}.weights")
    index["weight_map"] = {tensor: f"{name}.weights" for tensor, name in index["weight_map"].items()}
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    shutil.copytree(sharded / "adapter", tmp_path / "adapter")
    merge_in(tmp_path, tmp_path / "out")
    merge_in(sharded, tmp_path / "reference")
    for path in (tmp_path / "reference").glob("*.safetensors"):
        assert path.read_bytes() == (tmp_path / "out" / f"{path.name}.weights").read_bytes()


def test_companions_are_taken_from_the_adapter(tmp_path, sharded):
    make_base(tmp_path / "base", True, torch.bfloat16, companions=False)
    make_adapter(tmp_path / "adapter", tmp_path / "base", "tied")
    make_processor(make_tokenizer()).save_pretrained(tmp_path / "adapter")
    report = merge_in(tmp_path, tmp_path / "out")
    assert any("taken from the adapter's folder" in w for w in report.warnings)
    for name in ("tokenizer.json", "chat_template.jinja", "processor_config.json"):
        assert (tmp_path / "out" / name).exists()


def test_record_names_sources_and_digests(sharded, tmp_path):
    merge_in(sharded, tmp_path / "out")
    content = read_json(tmp_path / "out" / "export.json")
    assert content["format"] == 1
    (entry,) = content["history"]

    def digest(path):
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()

    assert entry["kind"] == "merge" and entry["tied"] is False and entry["changed_tensors"] == 16
    weights = sharded / "adapter" / "adapter_model.safetensors"
    assert entry["adapter"]["adapter_model.safetensors"] == digest(weights)
    assert entry["adapter"]["adapter_config.json"] == digest(weights.parent / "adapter_config.json")
    assert (entry["adapter"]["name"], entry["adapter"]["weights"]) == ("adapter", weights_digest(weights.parent))
    for path in (sharded / "base").glob("*.safetensors"):
        assert entry["base"][path.name] == digest(path)
    assert entry["base"]["config.json"] == digest(sharded / "base" / "config.json")
    assert entry["fingerprint"] == coord_vocab().fingerprint("qwen")
    assert set(entry["versions"]) == {"python", "torch", "coord-exporter", "coord-codec"}
    assert str(tmp_path) not in json.dumps(content)


@pytest.mark.parametrize("history", [None, {}, ["merge"]])
def test_history_of_refuses_a_damaged_record(tmp_path, history):
    (tmp_path / "export.json").write_text(json.dumps({"format": 1, "history": history}))
    with pytest.raises(InputError, match=r"export.json: history: expected a list of objects"):
        history_of(tmp_path)


@pytest.mark.parametrize(
    ("base", "adapter", "taken", "told"),
    [
        (["tokenizer.json", "preprocessor_config.json"], ["vocab.json", "merges.txt"], [], []),
        (["vocab.json", "processor_config.json"], ["tokenizer.json"], [], []),
        (["preprocessor_config.json"], [], [], ["no tokenizer files (the export has none either)"]),
        (["chat_template.jinja"], ["tokenizer.json", "chat_template.jinja", "processor_config.json", "other.json"],
         ["tokenizer.json", "processor_config.json"],
         ["no tokenizer files (taken from", "no processor files (taken from"]),
        (["tokenizer.json"], ["video_preprocessor_config.json"], [], ["no processor files (the export has none"]),
        (["tokenizer.json"], ["preprocessor_config.json", "video_preprocessor_config.json"],
         ["preprocessor_config.json", "video_preprocessor_config.json"], ["no processor files (taken from"]),
    ],
)  # fmt: skip
def test_tokenizer_and_processor_are_the_adapters_only_where_the_base_has_none(tmp_path, base, adapter, taken, told):
    for folder, names in ((tmp_path / "base", base), (tmp_path / "adapter", adapter)):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(f"of {folder.name}")
    checkpoint = StoredCheckpoint(tmp_path / "base", {}, (), None)
    files, warnings = find_companions(checkpoint, tmp_path / "adapter")
    assert {name: path.read_text() for name, path in files.items()} == {
        **dict.fromkeys(base, "of base"),
        **dict.fromkeys(taken, "of adapter"),
    }
    assert len(warnings) == len(told) and all(any(words in line for line in warnings) for words in told)


def test_what_is_written_anew_or_hidden_or_weights_is_no_companion(tmp_path):
    written = ("config.json", "export.json", "model.safetensors", "model.safetensors.index.json")
    left_out = (".hidden", "other.index.json", "old.bin", "model.gguf", "original/params.json", "other.safetensors")
    kept = ("LICENSE", "vocab.json", "processor_config.json", "additional_chat_templates/tool.jinja")
    for name in (*written, *left_out, *kept):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    weights = SafetensorsFile(tmp_path / "model.safetensors", (), {}, b"")
    files, (told,) = find_companions(StoredCheckpoint(tmp_path, {}, (weights,), None))
    assert {*files} == {*kept}
    assert "6 files left out" in told and ".hidden" in told


@pytest.mark.parametrize("content", [{"format": 2, "history": []}, {"history": []}])
def test_record_of_another_format_is_refused_and_without_a_record_there_is_no_history(tmp_path, content):
    assert history_of(tmp_path) == []
    (tmp_path / "export.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"expected format 1, found"):
        history_of(tmp_path)
    (tmp_path / "export.json").write_text(json.dumps({"format": 1, "history": [{"kind": "merge"}]}))
    assert history_of(tmp_path) == [{"kind": "merge"}]
