"""`find_tables` ties embedding and head where transformers does when it loads the checkpoint, for every family."""

import itertools
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))

import transformers
from path import unsuitable
from tiny_zoo import CLASSES, make_model
from transformers import AutoConfig

from coord_exporter import InputError
from coord_exporter.checkpoint.read import open_checkpoint
from coord_exporter.vocabulary import STATED, find_tables

OF_EACH_RULE = {"either place": "qwen2_5_vl", "the top": "qwen3_vl", "the top, absent is true": "gemma3"}
VALUES = (None, True, False)
NOT_COMPARED = {
    "inkling_mm_model": "not refused where transformers draws a head anew",
    "nemotron_h_omni": "its model names no head",
    "shieldgemma2": "its tables have a name that is refused",
}
"""Families whose tables are not compared with those of transformers, with the reason."""


def save_without_head(family, folder):
    """Save a tiny model of a family, and take its head out of the file."""
    tie = {"tie_word_embeddings": True, "text_config.tie_word_embeddings": True}
    model = make_model(family, **tie)
    if unsuitable(family, model, torch.tensor([[7, 8, 9]])) is not None:
        pytest.skip(f"no text model to load: {family}")
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith("lm_head.weight")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return json.loads((folder / "config.json").read_text())


def with_values(config, outer, inner):
    """Return a configuration with values of `tie_word_embeddings` at the top and in text_config; None: absent."""
    changed = json.loads(json.dumps(config))
    for part, value in ((changed, outer), (changed.get("text_config"), inner)):
        if part is not None:
            part["tie_word_embeddings"] = value
            if value is None:
                del part["tie_word_embeddings"]
    return changed


def check_family(family, folder):
    config = save_without_head(family, folder)
    kind = getattr(transformers, CLASSES[family])
    for outer, inner in itertools.product(VALUES, VALUES if "text_config" in config else (None,)):
        (folder / "config.json").write_text(json.dumps(with_values(config, outer, inner)))
        model = kind.from_pretrained(folder)
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        if tied:
            assert find_tables(open_checkpoint(folder)).tied, (outer, inner)
            continue
        with pytest.raises(InputError, match=r"config\.json: tie_word_embeddings .* does not tie the head") as caught:
            find_tables(open_checkpoint(folder))
        assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("family", OF_EACH_RULE.values(), ids=OF_EACH_RULE)
def test_head_is_tied_or_refused_as_transformers_loads_it(family, tmp_path):
    check_family(family, tmp_path)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("family", CLASSES)
def test_head_of_every_family_is_tied_or_refused_as_transformers_loads_it(family, tmp_path):
    if family in NOT_COMPARED:
        pytest.skip(NOT_COMPARED[family])
    try:
        make_model(family, **{"tie_word_embeddings": True, "text_config.tie_word_embeddings": True})
    except Exception as error:
        pytest.skip(f"no tiny model: {error!r:.80}")
    check_family(family, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(STATED - CLASSES.keys()))
def test_text_model_ties_as_its_configuration_states(family):
    for tied in (True, False):
        config = AutoConfig.for_model(
            family, vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, tie_word_embeddings=tied,
        )  # fmt: skip
        model = transformers.AutoModelForCausalLM.from_config(config)
        assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) is tied


def test_two_different_tables_under_tied_are_not_tied(tmp_path):
    """As in transformers 5, which loads both, with a warning."""
    model = make_model("qwen3_vl", **{"tie_word_embeddings": True, "text_config.tie_word_embeddings": True})
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    embed = tensors["model.language_model.embed_tokens.weight"]
    for head, tied in ((embed.clone(), True), (embed + (torch.arange(len(embed)) == 270)[:, None], False)):
        save_file(tensors | {"lm_head.weight": head}, path, metadata={"format": "pt"})
        assert find_tables(open_checkpoint(tmp_path)).tied is tied
        loaded = type(model).from_pretrained(tmp_path)
        assert (loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight) is tied
