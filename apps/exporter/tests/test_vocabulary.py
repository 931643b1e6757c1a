"""The vocabulary of a checkpoint: fingerprints of its tokenizer, its tables."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from tiny_checkpoint import (
    coord_vocab,
    make_adapter,
    make_base,
    make_processor,
    make_tokenizer,
    merge_quietly,
    read_all,
    refused,
)

from coord_codec import MARKERS, CoordGrid, CoordVocab
from coord_exporter import InputError, merge, vocabulary
from coord_exporter.checkpoint.read import StoredCheckpoint, open_checkpoint
from coord_exporter.expand import _with_vocab_size
from coord_exporter.vocabulary import find_tables, read_vocabulary, set_dtype, set_tied, with_one_tie


@pytest.mark.slow
def test_fingerprint_of_another_grid_is_refused(files, bases):
    other = CoordVocab(269, CoordGrid(bins=1000, scale=999)).fingerprint("qwen")
    make_adapter(files / "adapter", bases(False), "tied", fingerprint=other)
    refused(files, f"fingerprint {other}: the base's tokenizer has another grid")


def test_fingerprint_is_refused_by_a_base_without_coordinates(files, bases):
    make_processor(make_tokenizer(expanded=False)).save_pretrained(files / "base")
    refused(files, "the base's tokenizer has no coordinate tokens")


@pytest.mark.slow
@pytest.mark.parametrize("spelling", [None, "qwen", "obj", "ids"])
def test_fingerprint_of_any_marker_family_is_known(bases, tmp_path, spelling):
    markers = MARKERS["qwen"].ids(make_tokenizer()) if spelling == "ids" else spelling
    make_adapter(tmp_path / "adapter", bases(True), "tied", fingerprint=coord_vocab().fingerprint(markers=markers))
    report = merge_quietly(bases(True), tmp_path / "adapter", tmp_path / "out")
    assert not [warning for warning in report.warnings if "fingerprint" in warning]


@pytest.mark.slow
def test_fingerprint_or_tokenizer_missing_is_a_warning(tmp_path):
    make_base(tmp_path / "base", True, torch.float32, companions=False)
    make_adapter(tmp_path / "adapter", tmp_path / "base", "tied", fingerprint=None)
    report = merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out", quiet=True)
    assert [w.split(": ")[1][:18] for w in report.warnings[:2]] == ["no tokenizer files", "no processor files"]
    assert "the adapter carries no fingerprint" in report.warnings[2]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"model": {"vocab": {}}, "added_tokens": [{"id": 3}]}', "the tokenizer is damaged .KeyError"),
        ('{"model": {"vocab": [["a", -1.5]]}, "added_tokens": []}', "model.vocab: expected token texts and ids"),
        ('{"model": [], "added_tokens": []}', "the tokenizer is damaged"),
    ],
)
def test_read_vocabulary_refuses_damaged_tokenizer(tmp_path, content, match):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=match):
        read_vocabulary(tmp_path)


@pytest.mark.parametrize(
    ("config", "stored", "asked", "tied"),
    [
        ({"model_type": "qwen3", "tie_word_embeddings": True}, None, None, True),
        ({"model_type": "qwen3", "tie_word_embeddings": True}, "equal", None, True),
        ({"model_type": "qwen3", "tie_word_embeddings": True}, "other", None, False),  # the values decide
        ({"model_type": "qwen3", "tie_word_embeddings": True}, "other type", None, False),
        ({"model_type": "qwen3", "tie_word_embeddings": False}, "equal", None, False),
        ({"model_type": "qwen3"}, None, True, True),  # transformers says what a missing value means
        ({"model_type": "qwen3"}, "equal", False, False),
        ({"model_type": "qwen3_vl", "tie_word_embeddings": True, "text_config": {"tie_word_embeddings": False}},
         None, True, True),
        ({"model_type": "gemma2", "tie_word_embeddings": False}, "equal", True, True),  # a family of its own rule
        ({"model_type": "qwen3"}, None, False, None),
        ({"model_type": "qwen3", "tie_word_embeddings": False}, None, None, None),
    ],
)  # fmt: skip
def test_tables_are_tied_as_values_configuration_or_else_transformers_say(
    tmp_path, monkeypatch, config, stored, asked, tied
):
    table = torch.arange(8.0).reshape(4, 2)
    heads = {"equal": table.clone(), "other": table + 1, "other type": table.half()}
    save_file({"model.embed_tokens.weight": table} | ({"lm_head.weight": heads[stored]} if stored else {}),
              tmp_path / "model.safetensors")  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    calls = []
    monkeypatch.setattr(vocabulary, "tables_in_model", lambda base: calls.append(base) or SimpleNamespace(tied=asked))
    if tied is None:
        with pytest.raises(InputError, match="tie_word_embeddings"):
            find_tables(open_checkpoint(tmp_path))
    else:
        found = find_tables(open_checkpoint(tmp_path))
        assert (found.embed, found.head, found.tied) == ("model.embed_tokens.weight", "lm_head.weight", tied)
    assert bool(calls) is (asked is not None)


def test_find_tables_refuses_a_missing_head(files):
    tensors = read_all(files / "base")
    tensors.pop("lm_head.weight")
    save_file(tensors, files / "base" / "model.safetensors", metadata={"format": "pt"})
    refused(files, "config.json: tie_word_embeddings .false at the top and false in text_config.*lm_head.weight is not")


def test_nested_configurations_follow_the_outer_one():
    """A program reads one place or the other: what OUT states at the top is stated wherever it was stated before."""
    nested = {"dtype": "float32", "vocab_size": 9, "tie_word_embeddings": True, "rest": 1}
    config = {**nested, "architectures": ["A"], "text_config": {**nested, "deep": {"torch_dtype": "float32"}}}
    config["vision_config"] = {"torch_dtype": "float32", "rest": 2}
    for changed, keys, value in (
        (set_dtype(config, "bfloat16"), {"dtype", "torch_dtype"}, "bfloat16"),
        (set_tied(config, False), {"tie_word_embeddings"}, False),
        (_with_vocab_size(config, 12), {"vocab_size"}, 12),
    ):

        def with_value(part, keys=keys, value=value):
            items = part.items() if isinstance(part, dict) else ()
            return {k: value if k in keys else with_value(v) for k, v in items} if items else part

        assert changed == with_value(config)
    assert set_dtype({"architectures": ["A"], "text_config": {}}, "bfloat16")["dtype"] == "bfloat16"
    assert set_tied({"text_config": {}}, True)["text_config"] == {"tie_word_embeddings": True}


TRUE, FALSE = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("config", "tied", "expected", "told"),
    [
        (TRUE, True, TRUE, False),
        ({"text_config": TRUE} | TRUE, True, {"text_config": TRUE} | TRUE, False),
        ({}, True, {}, False),  # what no place states stays so, where only the top can
        ({"text_config": {}}, True, {"text_config": TRUE} | TRUE, False),
        ({"text_config": {}}, False, {"text_config": FALSE} | FALSE, False),
        ({"text_config": TRUE}, True, {"text_config": TRUE} | TRUE, False),
        (TRUE, False, FALSE, True),
        ({"text_config": FALSE} | TRUE, True, {"text_config": TRUE} | TRUE, True),
        ({"text_config": FALSE} | TRUE, False, {"text_config": FALSE} | FALSE, True),
    ],
)
def test_one_tie_is_stated_and_a_contradiction_told(tmp_path, config, tied, expected, told):
    found, notes = with_one_tie(StoredCheckpoint(tmp_path, config, (), None), tied)
    assert found == expected and bool(notes) is told
