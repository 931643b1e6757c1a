"""The merged tensors, bit by bit, against PEFT's own merge with the offsets written in by hand."""

import pytest
import torch
from export_tiny import load, make_adapter, read_all, read_json
from peft import PeftModel

from coord_exporter import merge

EMBED, HEAD = "model.language_model.embed_tokens.weight", "lm_head.weight"


def peft_merge(base, adapter, offsets):
    """State dict of PEFT's merge; then row k of a table is added to row ids[k], in float32, rounded once."""
    from coord_adapter import load_adapter

    model = load(base)
    model = load_adapter(model, adapter) if offsets else PeftModel.from_pretrained(model, adapter)
    state = {k: v.clone() for k, v in model.merge_and_unload().state_dict().items()}
    state = {k: v for k, v in state.items() if not k.startswith("coord_offset")}
    if offsets:
        saved = read_all(adapter)
        parts = {k.rpartition(".")[2]: v for k, v in saved.items() if "coord_offset_adapter" in k}
        head_table = parts["head_offset"] if offsets == "separate" else parts["embed_offset"]
        for name, table in ((EMBED, parts["embed_offset"]), (HEAD, head_table)):
            for token_id, row in zip(parts["token_ids"].tolist(), table, strict=True):
                state[name][token_id] = (state[name][token_id].float() + row.float()).to(state[name].dtype)
    return state


def check_equal(out, expected):
    found = read_all(out)
    assert not {n for n in found if not torch.equal(found[n], expected[n])}
    assert expected.keys() - found.keys() <= {HEAD}


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("offsets", [None, "tied", "separate"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_bits_of_peft(bases, tmp_path, tied, offsets, dora):
    base = bases(tied)
    make_adapter(tmp_path / "adapter", base, offsets, use_dora=dora)
    report = merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)

    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", offsets))
    before, after = read_all(base), read_all(tmp_path / "out")
    changed = {n for n in after if n not in before or not torch.equal(before[n], after[n])}
    linear = {n for n in before if "language_model" in n and n.endswith("_proj.weight")}
    tables = {EMBED} | ({HEAD} if not tied or offsets == "separate" else set())
    assert changed == linear | (tables if offsets else set())
    assert report.changed == len(changed)

    one = tied and offsets != "separate"
    assert (HEAD in after) is not one
    config = read_json(tmp_path / "out" / "config.json")
    assert config["tie_word_embeddings"] is config["text_config"]["tie_word_embeddings"] is one
    assert report.untied is (tied and not one)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_bits_of_peft_in_other_types(bases, tmp_path, dtype, dora):
    base = bases(False, dtype)
    make_adapter(tmp_path / "adapter", base, "separate", use_dora=dora)
    merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", "separate"))


VARIANTS = {
    "patterns": {"rank_pattern": {"q_proj": 4, r"1\.mlp\.up_proj": 2}, "alpha_pattern": {"v_proj": 3.5}},
    "rslora": {"use_rslora": True, "lora_alpha": 7},
    "dora rslora": {"use_rslora": True, "use_dora": True, "rank_pattern": {"k_proj": 3}},
    "all linear": {"target_modules": "all-linear"},
    "saved module": {"modules_to_save": ["merger", "lm_head"]},
    "biases": {"bias": "all", "target_modules": r".*visual.blocks.*(qkv|proj)"},
    "lora bias": {"lora_bias": True, "target_modules": r".*visual.*qkv"},
    "head": {"target_modules": ["lm_head", "q_proj"]},
    "trainable tokens": {"trainable_token_indices": {"embed_tokens": [7, 3], "lm_head": [900, 5, 0]}},
    "trainable tokens, list": {"trainable_token_indices": [1250, 4]},
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.filterwarnings("ignore")
def test_bits_of_peft_for_variants(bases, tmp_path, name):
    base = bases(False)
    make_adapter(tmp_path / "adapter", base, None, **VARIANTS[name])
    merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", None))
    assert any(not torch.equal(v, read_all(base)[n]) for n, v in read_all(tmp_path / "out").items())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", [{"target_modules": ["embed_tokens"]}, {"target_modules": ["lm_head"]}])
def test_adapting_one_side_of_a_tied_pair_unties_it(bases, tmp_path, target):
    # PEFT's own merge changes both sides here; the adapted model, unmerged, is what must come out.
    base = bases(True, "float32")
    peft_model = make_adapter(tmp_path / "adapter", base, None, **target)
    report = merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    assert report.untied
    ids = torch.arange(40, 90)[None]
    with torch.inference_mode():
        expected, found = peft_model(input_ids=ids).logits, load(tmp_path / "out")(input_ids=ids).logits
        plain = load(base)(input_ids=ids).logits
    assert (found - expected).abs().max() < 1e-4 < (plain - expected).abs().max()


@pytest.mark.filterwarnings("ignore")
def test_trainable_tokens_of_a_tied_base_stay_one_tensor(bases, tmp_path):
    base = bases(True)
    make_adapter(tmp_path / "adapter", base, None, trainable_token_indices={"embed_tokens": [11, 2, 700]})
    report = merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    assert not report.untied
    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", None))


def embedding_sum(base, adapter):
    """Embedding plus LoRA product plus offsets in float32, from the adapter's file by the formulas."""
    saved = {k.removeprefix("base_model.model."): v for k, v in read_all(adapter).items()}
    module = EMBED.removesuffix(".weight")
    total = read_all(base)[EMBED].float()
    total += (saved[f"{module}.lora_embedding_B"] @ saved[f"{module}.lora_embedding_A"]).T * (12 / 8)
    if "coord_offset_adapter.token_ids" in saved:
        total[saved["coord_offset_adapter.token_ids"]] += saved["coord_offset_adapter.embed_offset"]
    return total


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("offsets", [None, "tied"])
def test_adapted_embedding_is_rounded_once(bases, tmp_path, offsets):
    # PEFT rounds an embedding's product to the base's type before it adds it, and the offsets after that.
    base = bases(False)
    make_adapter(tmp_path / "adapter", base, offsets, target_modules=["embed_tokens"])
    merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    expected = embedding_sum(base, tmp_path / "adapter").bfloat16()
    assert torch.equal(read_all(tmp_path / "out")[EMBED], expected)


@pytest.mark.filterwarnings("ignore")
def test_adapted_embedding_and_head_in_float32(bases, tmp_path):
    base = bases(False, "float32")
    make_adapter(tmp_path / "adapter", base, None, target_modules=["embed_tokens", "lm_head"])
    merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", None))


@pytest.mark.filterwarnings("ignore")
def test_base_tensors_in_the_adapter_are_loaded_as_peft_does(bases, tmp_path):
    base = bases(False, "float32")
    model = make_adapter(tmp_path / "adapter", base, None, target_modules=["embed_tokens"])
    model.get_base_model().model.language_model.embed_tokens.base_layer.weight.data += 0.25
    model.save_pretrained(tmp_path / "adapter", save_embedding_layers=True)
    merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", None))
    assert (read_all(tmp_path / "out")[EMBED] - read_all(base)[EMBED]).mean() > 0.2


@pytest.mark.filterwarnings("ignore")
def test_tied_head_stored_beside_the_embedding(bases, tmp_path):
    from safetensors.torch import save_file

    base = tmp_path / "base"
    base.mkdir()
    for path in bases(True).iterdir():
        (base / path.name).symlink_to(path)
    tensors = read_all(base)
    (base / "model.safetensors").unlink()
    save_file(tensors | {HEAD: tensors[EMBED].clone()}, base / "model.safetensors", metadata={"format": "pt"})
    make_adapter(tmp_path / "adapter", bases(True), "tied")
    merge(base, tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    after = read_all(tmp_path / "out")
    assert torch.equal(after[HEAD], after[EMBED]) and not torch.equal(after[HEAD], tensors[EMBED])
    check_equal(tmp_path / "out", peft_merge(bases(True), tmp_path / "adapter", "tied"))


def test_adapter_saved_in_half_precision(bases, tmp_path):
    from safetensors.torch import save_file

    make_adapter(tmp_path / "adapter", bases(False), "separate", use_dora=True)
    halves = {
        k: v.bfloat16() if v.is_floating_point() else v for k, v in read_all(tmp_path / "adapter").items()
    }
    save_file(halves, tmp_path / "adapter" / "adapter_model.safetensors", metadata={"format": "pt"})
    merge(bases(False), tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    check_equal(tmp_path / "out", peft_merge(bases(False), tmp_path / "adapter", "separate"))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_offsets_saved_as_trainable_tokens_give_the_same_rows(bases, tmp_path, tied):
    from coord_adapter import save_as_trainable_tokens

    model = make_adapter(tmp_path / "offsets", bases(tied), "tied")
    save_as_trainable_tokens(model, tmp_path / "tokens")
    for name in ("offsets", "tokens"):
        merge(bases(tied), tmp_path / name, tmp_path / f"{name}-out", verify=False, quiet=True)
    one, other = read_all(tmp_path / "offsets-out"), read_all(tmp_path / "tokens-out")
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("dora", [False, True])
def test_transposed_layers(tmp_path, dora):
    """PEFT's Conv1D layers store [in, out] (fan_in_fan_out)."""
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import save_file
    from transformers.pytorch_utils import Conv1D

    from coord_exporter.checkpoint import TensorInfo, read_safetensors
    from coord_exporter.lora import LoraStep
    from coord_exporter.workspace import Workspace

    torch.manual_seed(0)
    layer = torch.nn.Sequential(Conv1D(24, 40))
    weight = layer[0].weight.detach().clone()
    config = LoraConfig(r=4, lora_alpha=6, target_modules=["0"], use_dora=dora, fan_in_fan_out=True)
    model = get_peft_model(layer, config)
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * 0.1 * parameter.requires_grad
    parts = {n: p.detach() for n, p in model.named_parameters() if "lora" in n}
    save_file({n.split(".")[3]: p.contiguous() for n, p in parts.items()}, tmp_path / "f.safetensors")
    infos = {t.name: t for t in read_safetensors(tmp_path / "f.safetensors").tensors}
    assert all(isinstance(info, TensorInfo) for info in infos.values())
    step = LoraStep(
        infos["lora_A"], infos["lora_B"], 1.5, infos.get("lora_magnitude_vector"), transposed=True
    )
    assert torch.equal(step.open(Workspace())(weight, 0, 40), model.merge_and_unload()[0].weight)
