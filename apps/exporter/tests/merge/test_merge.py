"""The merged tensors, bit by bit, against PEFT's own merge with the offsets written in by hand."""

import json
import shutil

import peft
import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file
from tiny_checkpoint import (
    EMBED,
    HEAD,
    link_base,
    load,
    make_adapter,
    merge_in,
    merge_quietly,
    read_all,
    read_json,
    same_files,
    shake,
)

from coord_adapter import load_adapter, save_as_trainable_tokens, weights_digest
from coord_exporter import InputError, merge


def peft_merge(base, adapter, offsets):
    """State dict of PEFT's merge; then row k of a table is added to row ids[k], in float32, rounded once."""

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


@pytest.mark.slow
@pytest.mark.drawn(4)
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("offsets", [None, "tied", "separate"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_merge_has_the_bits_of_peft(bases, tmp_path, tied, offsets, dora):
    base = bases(tied)
    make_adapter(tmp_path / "adapter", base, offsets, use_dora=dora)
    report = merge_quietly(base, tmp_path / "adapter", tmp_path / "out")

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


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_rows_merged_and_lora_kept_are_the_whole_merge(bases, tmp_path, tied):
    base, adapter, rows, lora = bases(tied), tmp_path / "adapter", tmp_path / "rows", tmp_path / "lora"
    make_adapter(adapter, base, "tied")
    (adapter / "coordexp.json").write_text(json.dumps({"format": 1, "base": weights_digest(base)}))
    merge_quietly(base, adapter, tmp_path / "whole")
    report = merge_quietly(base, adapter, rows, keep_lora=lora)
    assert report.changed == (1 if tied else 2) and not (rows / "coordexp.json").exists()
    settings, kept = read_json(lora / "adapter_config.json"), read_all(lora)
    assert not settings["modules_to_save"] and not settings["trainable_token_indices"]
    assert all("lora_" in name for name in kept) and len(kept) < len(read_all(adapter))
    loaded = PeftModel.from_pretrained(load(rows), lora)  # plain PEFT finds a place for each tensor
    assert {name for name, _ in loaded.named_parameters() if "lora_" in name}
    merge_quietly(rows, lora, tmp_path / "both")  # the adapter's card names the base with the rows
    check_equal(tmp_path / "both", read_all(tmp_path / "whole"))
    with pytest.raises(InputError, match="changes nothing"):
        merge_quietly(rows, lora, tmp_path / "again", keep_lora=tmp_path / "same")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("tied", "dtype", "offsets", "settings"),
    [
        (False, "float16", "separate", {"use_dora": True}),
        (False, "float32", "separate", {}),
        (False, "float32", None, {"target_modules": ["embed_tokens", "lm_head"]}),
        (True, "bfloat16", None, {"trainable_token_indices": {"embed_tokens": [11, 2, 700]}}),
    ],
)
def test_merge_has_the_bits_of_peft_in_other_types_and_layers(bases, tmp_path, tied, dtype, offsets, settings):
    base = bases(tied, dtype)
    make_adapter(tmp_path / "adapter", base, offsets, **settings)
    report = merge_quietly(base, tmp_path / "adapter", tmp_path / "out")
    assert not report.untied
    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", offsets))


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


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.filterwarnings("ignore")
def test_merge_has_the_bits_of_peft_for_variants(bases, tmp_path, name):
    base = bases(False)
    make_adapter(tmp_path / "adapter", base, None, **VARIANTS[name])
    merge_quietly(base, tmp_path / "adapter", tmp_path / "out")
    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", None))
    assert any(not torch.equal(v, read_all(base)[n]) for n, v in read_all(tmp_path / "out").items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "target",
    [
        {"target_modules": ["embed_tokens"]},
        {"target_modules": ["lm_head"]},
        {"target_modules": ["lm_head"], "trainable_token_indices": {"embed_tokens": [41, 2, 700]}},
        {"target_modules": ["embed_tokens"], "trainable_token_indices": {"lm_head": [41, 2, 700]}},
    ],
)
def test_merge_unties_a_pair_adapted_on_one_side(bases, tmp_path, target):
    # PEFT's own merge changes both sides here; the adapted model, unmerged, is what must come out. A tied head that is
    # adapted itself uses the embedding's trained rows all the same.
    base = bases(True, "float32")
    peft_model = make_adapter(tmp_path / "adapter", base, None, **target)
    report = merge_quietly(base, tmp_path / "adapter", tmp_path / "out")
    assert report.untied
    ids = torch.arange(40, 90)[None]
    with torch.inference_mode():
        expected, found = peft_model(input_ids=ids).logits, load(tmp_path / "out")(input_ids=ids).logits
        plain = load(base)(input_ids=ids).logits
    assert (found - expected).abs().max() < 1e-4 < (plain - expected).abs().max()


def embedding_sum(base, adapter):
    """Embedding plus LoRA product plus offsets in float32, from the adapter's file by the formulas."""
    saved = {k.removeprefix("base_model.model."): v for k, v in read_all(adapter).items()}
    module = EMBED.removesuffix(".weight")
    total = read_all(base)[EMBED].float()
    total += (saved[f"{module}.lora_embedding_B"] @ saved[f"{module}.lora_embedding_A"]).T * (12 / 8)
    if "coord_offset_adapter.token_ids" in saved:
        total[saved["coord_offset_adapter.token_ids"]] += saved["coord_offset_adapter.embed_offset"]
    return total


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("offsets", [None, "tied"])
def test_merge_rounds_an_adapted_embedding_once(bases, tmp_path, offsets):
    # PEFT rounds an embedding's product to the base's type before it adds it, and the offsets after that.
    base = bases(False)
    make_adapter(tmp_path / "adapter", base, offsets, target_modules=["embed_tokens"])
    merge_quietly(base, tmp_path / "adapter", tmp_path / "out")
    expected = embedding_sum(base, tmp_path / "adapter").bfloat16()
    assert torch.equal(read_all(tmp_path / "out")[EMBED], expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_merge_rounds_an_adapted_head_with_offsets_once(bases, tmp_path):
    """PEFT rounds the head to the base's type before the offsets are added: a unit in the last place."""
    make_adapter(tmp_path / "adapter", bases(False), "tied", target_modules=["lm_head"])
    merge_quietly(bases(False), tmp_path / "adapter", tmp_path / "out")
    saved = {k.removeprefix("base_model.model."): v for k, v in read_all(tmp_path / "adapter").items()}
    product = saved["lm_head.lora_B.weight"] @ saved["lm_head.lora_A.weight"] * 1.5
    adapted = read_all(bases(False))[HEAD].float() + product
    total = adapted.index_add(0, saved["coord_offset_adapter.token_ids"], saved["coord_offset_adapter.embed_offset"])
    found = read_all(tmp_path / "out")[HEAD]
    assert torch.equal(found, total.bfloat16())
    differences = (peft_merge(bases(False), tmp_path / "adapter", "tied")[HEAD].float() - found.float()).abs()
    unit = 2**-7 * torch.maximum(adapted.abs(), total.abs())  # bfloat16 has eight significant bits
    assert differences.any() and (differences <= unit).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_merge_takes_base_tensors_in_the_adapter_as_peft_does(bases, tmp_path):
    base = bases(False, "float32")
    model = make_adapter(tmp_path / "adapter", base, None, target_modules=["embed_tokens"])
    model.get_base_model().model.language_model.embed_tokens.base_layer.weight.data += 0.25
    model.save_pretrained(tmp_path / "adapter", save_embedding_layers=True)
    merge_quietly(base, tmp_path / "adapter", tmp_path / "out")
    check_equal(tmp_path / "out", peft_merge(base, tmp_path / "adapter", None))
    assert (read_all(tmp_path / "out")[EMBED] - read_all(base)[EMBED]).mean() > 0.2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_merge_of_a_tied_head_stored_beside_the_embedding(bases, tmp_path):
    base = link_base(bases(True), tmp_path / "base")
    tensors = read_all(base)
    (base / "model.safetensors").unlink()
    save_file(tensors | {HEAD: tensors[EMBED].clone()}, base / "model.safetensors", metadata={"format": "pt"})
    make_adapter(tmp_path / "adapter", bases(True), "tied")
    merge_quietly(base, tmp_path / "adapter", tmp_path / "out")
    after = read_all(tmp_path / "out")
    assert torch.equal(after[HEAD], after[EMBED]) and not torch.equal(after[HEAD], tensors[EMBED])
    check_equal(tmp_path / "out", peft_merge(bases(True), tmp_path / "adapter", "tied"))


@pytest.mark.slow
def test_merge_of_an_adapter_saved_in_half_precision(bases, tmp_path):
    make_adapter(tmp_path / "adapter", bases(False), "separate", use_dora=True)
    halves = {k: v.bfloat16() if v.is_floating_point() else v for k, v in read_all(tmp_path / "adapter").items()}
    save_file(halves, tmp_path / "adapter" / "adapter_model.safetensors", metadata={"format": "pt"})
    merge_quietly(bases(False), tmp_path / "adapter", tmp_path / "out")
    check_equal(tmp_path / "out", peft_merge(bases(False), tmp_path / "adapter", "separate"))


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_merge_of_offsets_saved_as_trainable_tokens_gives_the_same_rows(bases, tmp_path, tied):
    model = make_adapter(tmp_path / "offsets", bases(tied), "tied")
    save_as_trainable_tokens(model, tmp_path / "tokens")
    for name in ("offsets", "tokens"):
        merge_quietly(bases(tied), tmp_path / name, tmp_path / f"{name}-out")
    one, other = read_all(tmp_path / "offsets-out"), read_all(tmp_path / "tokens-out")
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.slow
def test_merge_refuses_the_same_adapter_twice(bases, adapters, tmp_path):
    merge_quietly(bases(True), adapters / "of-tied", tmp_path / "once")
    with pytest.raises(InputError, match=r"is merged into .*once already"):
        merge_quietly(tmp_path / "once", adapters / "of-tied", tmp_path / "twice")
    make_adapter(tmp_path / "other", tmp_path / "once", "separate", r=4)
    merge_quietly(tmp_path / "once", tmp_path / "other", tmp_path / "two")
    history = read_json(tmp_path / "two" / "export.json")["history"]
    assert [entry["adapter"]["name"] for entry in history] == ["of-tied", "other"]
    with pytest.raises(InputError, match=r"is merged into .*two already"):
        merge_quietly(tmp_path / "two", adapters / "of-tied", tmp_path / "three")


def test_merge_does_not_touch_its_inputs(bases, adapters, tmp_path):
    def state():
        paths = [path for folder in (bases(True), adapters / "of-tied") for path in folder.iterdir()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    before = state()
    merge_quietly(bases(True), adapters / "of-tied", tmp_path / "out")
    assert state() == before


def test_merge_gives_the_same_bytes_again(sharded, tmp_path):
    for name in ("one", "other"):
        merge_in(sharded, tmp_path / name)
    assert same_files(tmp_path / "one", tmp_path / "other")


@pytest.mark.slow
@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtype_is_that_of_all_weights_and_of_the_configuration(bases, adapters, tmp_path, dtype):
    merge(bases(False), adapters / "offsets", tmp_path / "out", dtype=dtype, verify=True, quiet=True)
    merge_quietly(bases(False), adapters / "offsets", tmp_path / "kept")
    kept = read_all(tmp_path / "kept")
    for name, found in read_all(tmp_path / "out").items():
        assert found.dtype == getattr(torch, dtype)
        if dtype == "bfloat16":
            assert found.equal(kept[name])
        assert (found.float() - kept[name].float()).abs().max() < 0.02
    config = read_json(tmp_path / "out" / "config.json")
    assert config["dtype"] == dtype and config["text_config"].get("dtype", dtype) == dtype
    assert load(tmp_path / "out").get_input_embeddings().weight.dtype == getattr(torch, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("bias", ["lora_only", "all", "none"])
def test_biases_that_were_trained_and_not_saved_are_told(bases, tmp_path, bias):
    """PEFT before 0.21 trains the biases of adapted layers with `lora_only` and does not save them."""
    lost = bias == "lora_only" and tuple(map(int, peft.__version__.split(".")[:2])) < (0, 21)
    make_adapter(tmp_path / "adapter", bases(False), None, bias=bias, target_modules=r".*visual.blocks.*(qkv|proj)")
    saved = {name for name in read_all(tmp_path / "adapter") if name.endswith("base_layer.bias")}
    report = merge_quietly(bases(False), tmp_path / "adapter", tmp_path / "out")
    told = [warning for warning in report.warnings if "bias: " in warning]
    assert bool(told) is lost and bool(saved) is (bias != "none" and not lost)
    if lost:
        assert told[0].startswith(f"{tmp_path / 'adapter' / 'adapter_config.json'}: bias: 'lora_only'")
        assert "trained 2 biases" in told[0]


def test_merge_states_one_tie_where_the_base_states_two(files):
    config = read_json(files / "base" / "config.json")
    config["text_config"]["tie_word_embeddings"] = True
    (files / "base" / "config.json").write_text(json.dumps(config))
    report = merge_in(files, files / "out")
    written = read_json(files / "out" / "config.json")
    assert written["tie_word_embeddings"] is written["text_config"]["tie_word_embeddings"] is False
    assert [warning for warning in report.warnings if "false at the top and true in text_config" in warning]


@pytest.mark.slow
def test_lora_that_peft_ties_keeps_the_tie(bases, tmp_path):
    """PEFT's own merge of `ensure_weight_tying` adds it to the shared weight twice."""
    tied = {"target_modules": ["embed_tokens", "q_proj"], "ensure_weight_tying": True}
    make_adapter(tmp_path / "adapter", bases(True, "float32"), None, **tied)
    factors = read_all(tmp_path / "adapter")
    start = "base_model.model.model.language_model.embed_tokens.lora_embedding_"
    if "base_model.model.lm_head.lora_A.weight" not in factors:
        pytest.skip("this PEFT saves one of the two")
    delta = (factors[f"{start}B"] @ factors[f"{start}A"]).T * (12 / 8)
    report = merge(bases(True, "float32"), tmp_path / "adapter", tmp_path / "out", quiet=True, verify=True)
    merged, before = read_all(tmp_path / "out"), read_all(bases(True, "float32"))
    assert not report.untied and HEAD not in merged
    assert torch.allclose(merged[EMBED], before[EMBED] + delta, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("equal", [True, False])
def test_saved_tables_keep_the_tie_where_they_are_equal(bases, tmp_path, equal):
    """With `ensure_weight_tying` PEFT stores both."""
    base = bases(True, "float32")
    make_adapter(
        tmp_path / "adapter", base, None, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]
    )
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    saved = read_all(tmp_path / "adapter")
    embed, head = (next(n for n in saved if n.endswith(f"{end}.weight")) for end in ("embed_tokens", "lm_head"))
    saved[head] = saved[embed].clone() + (0 if equal else 1)
    save_file(saved, file, {"format": "pt"})
    report = merge(base, tmp_path / "adapter", tmp_path / "out", quiet=True, verify=False)
    merged = read_all(tmp_path / "out")
    assert report.untied is not equal and (HEAD in merged) is not equal
    assert torch.equal(merged[EMBED], saved[embed])


@pytest.mark.slow
@pytest.mark.parametrize("what", ["all", "a layer", "offsets"])
def test_merge_says_what_changes_nothing(bases, tmp_path, what):
    base = bases(True, "float32")
    make_adapter(tmp_path / "adapter", base, "separate" if what == "offsets" else None)
    saved = read_all(tmp_path / "adapter")
    zero = {"all": ".lora_B.weight", "a layer": "layers.0.self_attn.q_proj.lora_B.weight", "offsets": "_offset"}[what]
    saved = {name: tensor * 0 if name.endswith(zero) else tensor for name, tensor in saved.items()}
    save_file(saved, tmp_path / "adapter" / "adapter_model.safetensors", {"format": "pt"})
    report = merge(base, tmp_path / "adapter", tmp_path / "out", quiet=True)
    before, after = read_all(base), read_all(tmp_path / "out")
    assert report.changed == sum(not torch.equal(before[name], after[name]) for name in before)
    assert before.keys() == after.keys() and not report.untied
    said = "changes nothing" if what == "all" else "adapted tensors do not change"
    assert [warning for warning in report.warnings if said in warning]


@pytest.mark.slow
def test_adapters_in_folders_of_their_names_are_named(bases, tmp_path):
    base = bases(True, "float32")
    make_adapter(tmp_path / "two", base, None)
    shutil.copytree(tmp_path / "two", tmp_path / "two" / "second")
    shutil.copytree(tmp_path / "two" / "second", tmp_path / "named" / "sft")
    for name, told in (("two", "two/second"), ("named", "named/sft")):
        report = merge(base, tmp_path / name, tmp_path / f"out-{name}", quiet=True, verify=False)
        assert report.changed and [w for w in report.warnings if f"{tmp_path / told}" in w]
    shutil.copytree(tmp_path / "named" / "sft", tmp_path / "named" / "dpo")
    with pytest.raises(InputError, match=r"named/dpo.*named/sft: name one"):
        merge(base, tmp_path / "named", tmp_path / "out", quiet=True)


@pytest.mark.slow
def test_adapters_merged_one_after_the_other_add_up(bases, tmp_path):
    """What the README says instead of PEFT's `add_weighted_adapter`, which refuses `modules_to_save`."""
    base = bases(False, "float32")
    for name, seed in (("first", 3), ("second", 4)):
        model = make_adapter(tmp_path / name, base, "separate")
        shake(model, seed=seed).save_pretrained(tmp_path / name)
        merge_quietly(base, tmp_path / name, tmp_path / f"{name}-alone")
    with pytest.raises(ValueError, match="modules_to_save"):
        model.load_adapter(tmp_path / "first", "other")
        model.add_weighted_adapter(["default", "other"], [0.5, 0.5], "sum", combination_type="linear")
    merge_quietly(base, tmp_path / "first", tmp_path / "sum")
    merge_quietly(tmp_path / "sum", tmp_path / "second", tmp_path / "out", force=True)
    before, out = read_all(base), read_all(tmp_path / "out")
    alone = [read_all(tmp_path / f"{name}-alone") for name in ("first", "second")]
    for name, tensor in out.items():
        expected = before[name] + sum(one[name] - before[name] for one in alone)
        assert torch.allclose(tensor, expected, atol=1e-5), name
