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
from tiny_zoo import CLASSES, make_tied, with_ties
from transformers import AutoConfig

from coord_exporter import InputError
from coord_exporter.checkpoint.read import open_checkpoint
from coord_exporter.vocabulary import STATED, find_tables

OF_EACH_RULE = {"either place": "qwen2_5_vl", "the top": "qwen3_vl", "the top, absent is true": "gemma3"}
VALUES = (None, True, False)
NO_EMBEDDING = r"expected the embedding [\w.]+, found no tensor that transformers [\w.]+ loads as it"
NO_HEAD = r"config\.json: transformers' \w+ has no embedding and head in common with a text model"
NOT_TIED = r"config\.json: tie_word_embeddings .* does not tie the head"


def save_without_head(family, folder):
    """Save a tiny model of a family, and take its head out of the file."""
    model = make_tied(family)
    if unsuitable(family, model, torch.tensor([[7, 8, 9]])) is not None:
        pytest.skip(f"no text model to load: {family}")
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    head = model.get_output_embeddings()
    alone = head is not None and head.weight is not model.get_input_embeddings().weight
    kept = {name: tensor for name, tensor in tensors.items() if not (alone and torch.equal(tensor, head.weight))}
    assert len(kept) == len(tensors) - alone
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return json.loads((folder / "config.json").read_text())


def check_family(family, folder):
    config = save_without_head(family, folder)
    kind = getattr(transformers, CLASSES[family])
    for outer, inner in itertools.product(VALUES, VALUES if "text_config" in config else (None,)):
        (folder / "config.json").write_text(json.dumps(with_ties(config, outer, inner)))
        model, info = kind.from_pretrained(folder, output_loading_info=True)
        head = model.get_output_embeddings()
        if any(name.endswith("embed_tokens.weight") for name in info["missing_keys"]):
            reason = NO_EMBEDDING
        elif head is None:
            reason = NO_HEAD
        elif head.weight is not model.get_input_embeddings().weight:
            reason = NOT_TIED
        else:
            assert find_tables(open_checkpoint(folder)).tied, (outer, inner)
            continue
        with pytest.raises(InputError, match=reason) as caught:
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
    try:
        make_tied(family)
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


@pytest.mark.slow
def test_two_different_tables_under_tied_are_not_tied(tmp_path):
    """As in transformers 5, which loads both, with a warning."""
    model = make_tied("qwen3_vl")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    embed = tensors["model.language_model.embed_tokens.weight"]
    for head, tied in ((embed.clone(), True), (embed + (torch.arange(len(embed)) == 270)[:, None], False)):
        save_file(tensors | {"lm_head.weight": head}, path, metadata={"format": "pt"})
        assert find_tables(open_checkpoint(tmp_path)).tied is tied
        loaded = type(model).from_pretrained(tmp_path)
        assert (loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight) is tied
