"""Loading a checkpoint for inference: damaged files, and adapters of another base."""

import json
import re
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tiny_run import tiny_config
from transformers import AutoModelForImageTextToText

from coord_adapter import weights_digest
from coord_codec import CoordVocab, InputError
from coord_detect.model.checkpoint import open_checkpoint
from coord_trainer.model.card import make_card
from coord_trainer.model.parameters import offset_ids, refuse_random_head


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, b"\x08\x00"], ids=["missing", "truncated"])
def test_damaged_checkpoint_is_named_in_one_line(tiny_model, tmp_path, content):
    """As an interrupted download or copy leaves it."""
    folder = shutil.copytree(tiny_model, tmp_path / "base")
    (folder / "model.safetensors").unlink()
    if content is not None:
        (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="base: not a complete checkpoint"):
        open_checkpoint(folder, tiny_config())


def test_model_that_is_newer_than_transformers_is_told_with_both(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "base")
    config = json.loads((folder / "config.json").read_text()) | {
        "model_type": "qwen9_vl",
        "transformers_version": "7.1",
    }
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"has no 'qwen9_vl' \(it was saved by 7\.1\); install a newer"):
        open_checkpoint(folder, tiny_config())


NORM = "model.language_model.norm.weight"
OTHER_WEIGHTS = {
    "missing": (lambda w: {NORM: None}, rf"1 weight of Qwen3VL\w+ of transformers \S+ is missing \({NORM}\)"),
    "shape": (lambda w: {NORM: w[NORM][1:].clone()}, rf"is of another shape \({NORM} \[31\], expected \[32\]\)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHER_WEIGHTS)
def test_weights_of_another_architecture_are_refused(tiny_model, tmp_path, case, capfd):
    """As of a newer transformers, or of a file that lacks some: transformers would draw random ones in their place."""
    changes, told = OTHER_WEIGHTS[case]
    folder = shutil.copytree(tiny_model, tmp_path / "base")
    weights = load_file(folder / "model.safetensors")
    weights = {name: tensor for name, tensor in (weights | changes(weights)).items() if tensor is not None}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=told):
        open_checkpoint(folder, tiny_config())
    assert "LOAD REPORT" not in capfd.readouterr().err


@pytest.mark.slow
def test_weights_without_a_place_are_told(tiny_model, tmp_path, capsys):
    folder = shutil.copytree(tiny_model, tmp_path / "base")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"model.more": weights[NORM].clone()}, folder / "model.safetensors", {"format": "pt"})
    open_checkpoint(folder, tiny_config())
    assert "does not have, left out: model.more" in capsys.readouterr().out


@pytest.fixture
def adapter(tiny_model, tmp_path):
    """The folder of a LoRA adapter of the tiny model."""
    model = AutoModelForImageTextToText.from_pretrained(tiny_model)
    get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(tiny_model)
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(config))
    return tmp_path / "adapter"


@pytest.mark.slow
def test_adapter_of_another_base_is_named(adapter):
    file = adapter / "adapter_model.safetensors"
    wider = {name: torch.cat([tensor, tensor], dim=int("lora_A" in name)) for name, tensor in load_file(file).items()}
    save_file({name: tensor.contiguous() for name, tensor in wider.items()}, file)
    with pytest.raises(InputError, match=r"adapter: .*size mismatch"):
        open_checkpoint(adapter, tiny_config())


@pytest.mark.slow
def test_adapter_of_another_base_of_the_same_shapes_is_named(tiny_model, adapter):
    card = make_card(tiny_config(), {}, None)
    card.model_copy(update={"base": weights_digest(tiny_model)}).write(adapter)
    open_checkpoint(adapter, tiny_config())
    card.model_copy(update={"base": "another"}).write(adapter)
    with pytest.raises(InputError, match=r"the adapter names another: another base"):
        open_checkpoint(adapter, tiny_config())


@pytest.mark.slow
def test_truncated_adapter_is_named(adapter):
    (adapter / "adapter_model.safetensors").write_bytes(b"\x08\x00")
    with pytest.raises(InputError, match="adapter: "):
        open_checkpoint(adapter, tiny_config())


@pytest.mark.slow
@pytest.mark.parametrize("taken", [False, True], ids=["gone", "of another run"])
def test_adapter_of_a_moved_run_is_loaded_with_the_base_of_its_run(tiny_model, adapter, tmp_path, taken):
    """Its file names the base where the run was, and another run may be there by now."""
    shutil.copytree(tiny_model, tmp_path / "moved/base")
    moved = shutil.copytree(adapter, tmp_path / "moved/checkpoints/checkpoint-1")
    config = json.loads((moved / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(tmp_path / "run/base")
    (moved / "adapter_config.json").write_text(json.dumps(config))
    if taken:
        other = load_file(shutil.copytree(tiny_model, tmp_path / "run/base") / "model.safetensors")
        save_file({name: tensor + 1 for name, tensor in other.items()}, tmp_path / "run/base/model.safetensors")
    expected = open_checkpoint(adapter, tiny_config()).model.state_dict()
    found = open_checkpoint(moved, tiny_config()).model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_missing_base_of_an_adapter_is_named_with_the_remedy(adapter, tmp_path):
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(tmp_path / "gone")
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"gone', and there is no such folder here; move the base back, or"):
        open_checkpoint(adapter, tiny_config())


@pytest.mark.parametrize(
    ("ids", "markers", "count", "told"),
    [
        (None, "qwen", 1000, None),
        (None, "obj", 1002, "1,002 rows are trained, 1,000 coordinates"),
        ({"start": 101, "end": 1100}, "qwen", 1000, None),
        ({"start": 100, "end": 1100}, "qwen", 1001, "1 of 1,001 ids are no coordinates .* the first 100;"),
        ({"start": 90, "end": 1100}, "qwen", 1011, "11 of 1,011 ids are no coordinates .* the first 90;"),
    ],
)
def test_rows_that_are_no_coordinates_are_told(capsys, ids, markers, count, told):
    data = {"markers": markers}
    config = tiny_config(data=data, custom={"coord_offset": {"enabled": True, "ids": ids}})
    found = offset_ids(config, CoordVocab(101), (7, 8), 1101)
    assert len(found) == count
    with pytest.raises(InputError, match="1100 is outside the embedding, which has 1100 rows"):
        offset_ids(config, CoordVocab(101), (7, 8), 1100)
    said = capsys.readouterr()
    if told is None:
        assert "coord_offset" not in said.out + said.err
    else:
        assert re.search(told, (said.out + said.err).replace("\n", " "))


@pytest.mark.parametrize("ids", [{"start": 100, "end": 1100}, [*range(101, 1101), 100]])
def test_wildcard_among_the_ids_is_refused_unless_it_is_allowed(ids):
    def rows(ids, **more):
        config = tiny_config(custom={"coord_offset": {"enabled": True, "ids": ids, **more}})
        return offset_ids(config, CoordVocab(101), (7, 8), 1200, wildcard=100)

    with pytest.raises(InputError, match=r"ids: 100 is the wildcard .*allow_wildcard: true"):
        rows(ids)
    assert len(rows(ids, allow_wildcard=True)) == 1001
    assert len(rows({"start": 101, "end": 1100})) == 1000


@pytest.mark.slow
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(("top", "inner", "tied"), [(True, True, True), (False, True, False), (None, True, False)])
def test_head_that_transformers_fills_with_random_values_is_refused(tiny_model, tmp_path, top, inner, tied, stored):
    """Qwen3-VL is tied by the key at the top alone."""
    folder = shutil.copytree(tiny_model, tmp_path / "base")
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"], config["text_config"]["tie_word_embeddings"] = top, inner
    if top is None:
        del config["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    embed = next(tensor for name, tensor in tensors.items() if name.endswith("embed_tokens.weight"))
    head = {"lm_head.weight": embed.clone()} if stored else {}
    save_file(tensors | head, folder / "model.safetensors", metadata={"format": "pt"})
    model = AutoModelForImageTextToText.from_pretrained(folder)
    if tied or stored:
        refuse_random_head(model, folder)
        return
    with pytest.raises(InputError, match=r"config\.json: tie_word_embeddings .* lm_head\.weight is not stored"):
        refuse_random_head(model, folder)
