"""Plans on a tiny model: what each kind of tensor in an adapter does, by its formula, and what does not fit."""

import errno
import json
import os
from functools import partial

import pytest
import torch
from safetensors.torch import save_file
from tiny_checkpoint import merge_quietly, read_all, read_json, same_files

from coord_adapter import weights_digest
from coord_exporter import ExportError, InputError, from_peft, merge, plan, to_peft
from coord_exporter.adapter import open_adapter
from coord_exporter.checkpoint import recipe, write
from coord_exporter.checkpoint.read import ITEM_BYTES, TensorInfo, open_checkpoint, read_safetensors
from coord_exporter.verify import tensors

EMBED, HEAD, Q = "model.embed_tokens", "lm_head", "model.layers.0.mlp.up_proj"
EXPERTS = "model.layers.0.experts"


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) * 7 + len(shape)))


def in_model():
    return {
        f"{EMBED}.weight": drawn(6, 4),
        f"{Q}.weight": drawn(3, 4),
        f"{Q}.bias": drawn(3),
        f"{EXPERTS}.w": drawn(3, 5, 4),
        "model.norm.bias": drawn(4),
    }


def lora(module, rows, columns, rank=2):
    return {f"{module}.lora_A.weight": drawn(rank, columns), f"{module}.lora_B.weight": drawn(rows, rank)}


ON_Q, ON_EXPERTS = lora(Q, 3, 4), lora(EXPERTS, 5, 4, 6)
ON_EMBED = {f"{EMBED}.lora_embedding_A": drawn(2, 6), f"{EMBED}.lora_embedding_B": drawn(4, 2)}
OF_EXPERTS, BOTH_OF_EXPERTS = (
    {"target_parameters": ["experts.w"]},
    {"target_parameters": ["experts.other", "experts.w"]},
)
TOKENS = {f"{EMBED}.token_adapter.trainable_tokens_delta": drawn(2, 4)}
LISTED = {"trainable_token_indices": {"embed_tokens": [4, 1]}}
OFFSETS = {"coord_offset_adapter.token_ids": torch.tensor([5, 2]), "coord_offset_adapter.embed_offset": drawn(2, 4)}
OFFSETS |= {"coord_offset_adapter.head_offset": torch.zeros(0, 4)}  # one table for both
ON_HEAD = {"coord_offset_adapter.head_offset": 2 * drawn(2, 4)}


def folders(folder, adapter, settings, base=None, tied=True):
    (folder / "base").mkdir()
    save_file(in_model() | (base or {}), folder / "base" / "model.safetensors", {"format": "pt"})
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": tied}
    config |= {"num_hidden_layers": 1}
    (folder / "base" / "config.json").write_text(json.dumps(config))
    (folder / "adapter").mkdir()
    named = {f"base_model.model.{name}": tensor.clone() for name, tensor in adapter.items()}
    save_file(named, folder / "adapter" / "adapter_model.safetensors", {"format": "pt"})
    stated = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["up_proj"], **settings}
    stated |= {} if any(name.startswith(Q) for name in adapter) else {"target_modules": []}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(stated))
    return folder / "base", folder / "adapter"


def product(adapter, module):
    return adapter[f"{module}.lora_B.weight"] @ adapter[f"{module}.lora_A.weight"]


def of_experts(alpha=3.0):
    """Each expert's own product; the ranks are the outer index of B, the experts that of A."""
    a, b = (ON_EXPERTS[f"{EXPERTS}.lora_{part}.weight"] for part in "AB")
    return torch.stack([alpha * b[:, e::3] @ a[2 * e : 2 * e + 2] for e in range(3)])


def with_rows(table, ids, rows, added=False):
    table = table.clone()
    for row, token_id in zip(rows, ids, strict=True):
        table[token_id] = row + (table[token_id] if added else 0)
    return table


BEFORE = in_model()
TABLE, TABLE_ON_EMBED = (
    BEFORE[f"{EMBED}.weight"],
    3 * (ON_EMBED[f"{EMBED}.lora_embedding_B"] @ ON_EMBED[f"{EMBED}.lora_embedding_A"]).T,
)
TOLD = {f"{EMBED}.weight": with_rows(TABLE, [4, 1], next(iter(TOKENS.values())))}
MADE = [
    (ON_Q, {}, {f"{Q}.weight": BEFORE[f"{Q}.weight"] + 3 * product(ON_Q, Q)}),
    (ON_Q, {"use_rslora": True}, {f"{Q}.weight": BEFORE[f"{Q}.weight"] + 6 / 2**0.5 * product(ON_Q, Q)}),
    (ON_Q, {"alpha_pattern": {"up_proj": 8}}, {f"{Q}.weight": BEFORE[f"{Q}.weight"] + 4 * product(ON_Q, Q)}),
    (ON_EXPERTS, OF_EXPERTS, {f"{EXPERTS}.w": BEFORE[f"{EXPERTS}.w"] + of_experts()}),
    (ON_EXPERTS, BOTH_OF_EXPERTS, {f"{EXPERTS}.w": BEFORE[f"{EXPERTS}.w"] + of_experts()}),
    ({f"{name.replace('.lora', '.base_layer.lora')}": value for name, value in ON_EXPERTS.items()}, BOTH_OF_EXPERTS,
     {f"{EXPERTS}.w": BEFORE[f"{EXPERTS}.w"] + of_experts()}),
    (ON_EXPERTS, OF_EXPERTS | {"rank_pattern": {"experts.w": 2}, "r": 9, "alpha_pattern": {"experts.w": 4}},
     {f"{EXPERTS}.w": BEFORE[f"{EXPERTS}.w"] + of_experts(2.0)}),
    (ON_Q | {f"{Q}.lora_B.bias": drawn(3)}, {"lora_bias": True},
     {f"{Q}.weight": BEFORE[f"{Q}.weight"] + 3 * product(ON_Q, Q), f"{Q}.bias": BEFORE[f"{Q}.bias"] + 3 * drawn(3)}),
    (TOKENS, LISTED, TOLD),
    (TOKENS | {f"{HEAD}.token_adapter.trainable_tokens_delta": 2 * drawn(2, 4)},
     {"trainable_token_indices": {"embed_tokens": [4, 1], "lm_head": [1, 3]}},
     TOLD | {f"{HEAD}.weight": with_rows(TABLE, [1, 3], 2 * drawn(2, 4))}),
    ({f"{HEAD}.token_adapter.trainable_tokens_delta": drawn(2, 4)}, {"trainable_token_indices": {"lm_head": [1, 3]}},
     {f"{HEAD}.weight": with_rows(TABLE, [1, 3], drawn(2, 4))}),
    (TOKENS | lora(HEAD, 6, 4), LISTED,  # the head shares the trained rows, and its product is added to them
     TOLD | {f"{HEAD}.weight": with_rows(TABLE, [4, 1], drawn(2, 4)) + 3 * product(lora(HEAD, 6, 4), HEAD)}),
    ({f"{EMBED}.base_layer.weight": 2 * drawn(6, 4), f"{HEAD}.modules_to_save.default.weight": 3 * drawn(6, 4)},
     {"modules_to_save": ["lm_head"]}, {f"{EMBED}.weight": 2 * drawn(6, 4), f"{HEAD}.weight": 3 * drawn(6, 4)}),
    ({f"{Q}.modules_to_save.default.weight": 2 * drawn(3, 4)}, {"modules_to_save": ["up_proj"]},
     {f"{Q}.weight": 2 * drawn(3, 4)}),
    (lora(f"{Q}.base_layer", 3, 4), {}, {f"{Q}.weight": BEFORE[f"{Q}.weight"] + 3 * product(ON_Q, Q)}),
    (OFFSETS, {}, {f"{EMBED}.weight": with_rows(TABLE, [5, 2], drawn(2, 4), added=True)}),
    ({name: value * 0 for name, value in TOKENS.items()}, LISTED,  # rows that training has made 0
     {f"{EMBED}.weight": with_rows(TABLE, [4, 1], torch.zeros(2, 4))}),
    (TOKENS, {"trainable_token_indices": [4, 1]}, TOLD),  # a list alone is the embedding's
    (OFFSETS | ON_HEAD, {}, {f"{EMBED}.weight": with_rows(TABLE, [5, 2], drawn(2, 4), added=True),
                             f"{HEAD}.weight": with_rows(TABLE, [5, 2], 2 * drawn(2, 4), added=True)}),
    (ON_EMBED | OFFSETS, {}, {f"{EMBED}.weight": with_rows(TABLE + TABLE_ON_EMBED, [5, 2], drawn(2, 4), added=True),
                              f"{HEAD}.weight": with_rows(TABLE, [5, 2], drawn(2, 4), added=True)}),
    ({f"{Q}.base_layer.bias": drawn(3) * 2} | ON_Q, {"bias": "lora_only"},
     {f"{Q}.weight": BEFORE[f"{Q}.weight"] + 3 * product(ON_Q, Q), f"{Q}.bias": drawn(3) * 2}),
    ({"model.norm.modules_to_save.default.bias": drawn(4) * 2, "model.norm.original_module.bias": drawn(4)},
     {"modules_to_save": ["norm"]}, {"model.norm.bias": drawn(4) * 2}),
]  # fmt: skip


@pytest.mark.parametrize(("adapter", "settings", "expected"), MADE, ids=range(len(MADE)))
def test_each_kind_of_tensor_does_what_its_formula_says(tmp_path, adapter, settings, expected):
    base, folder = folders(tmp_path, adapter, settings)
    report = merge_quietly(base, folder, tmp_path / "out")
    found = read_all(tmp_path / "out")
    assert found.keys() == BEFORE.keys() | expected.keys()
    for name, value in found.items():
        assert torch.allclose(value, expected.get(name, BEFORE.get(name)), atol=1e-5), name
    assert report.changed == len(expected) and report.untied is (f"{HEAD}.weight" in expected)
    assert not [warning for warning in report.warnings if "do not change" in warning or "bias: " in warning]
    assert sum("embedding and head differ" in warning for warning in report.warnings) == report.untied


def test_experts_that_are_stored_as_inputs_by_outputs_are_turned(tmp_path):
    stored = drawn(3, 5, 4).mT.contiguous()
    base, folder = folders(tmp_path, ON_EXPERTS, OF_EXPERTS, {f"{EXPERTS}.w": stored})
    merge_quietly(base, folder, tmp_path / "out")
    assert torch.allclose(read_all(tmp_path / "out")[f"{EXPERTS}.w"], stored + of_experts().mT, atol=1e-5)


DORA = {"use_dora": True}
MAGNITUDE = f"{Q}.lora_magnitude_vector"
REFUSED = [
    (lora(EXPERTS, 5, 4, 5), OF_EXPERTS, {}, "do not fit the base's"),
    (ON_EXPERTS | {f"{EXPERTS}.lora_A.weight": drawn(5, 4)}, OF_EXPERTS, {}, "do not fit the base's"),
    (ON_EXPERTS | {f"{EXPERTS}.lora_B.weight": drawn(5, 5)}, OF_EXPERTS, {}, "do not fit the base's"),
    (lora(EXPERTS, 4, 4, 6), OF_EXPERTS, {f"{EXPERTS}.w": drawn(3, 4, 4)}, "square"),
    (ON_EXPERTS | {f"{EXPERTS}.lora_magnitude_vector": drawn(5)}, OF_EXPERTS, {}, "expected two factors"),
    (ON_EXPERTS | {f"{EXPERTS}.lora_B.bias": drawn(5)}, OF_EXPERTS, {}, "expected two factors"),
    ({f"{Q}.lora_A.weight": drawn(2, 4)}, {}, {}, "factor is missing"),
    ({f"{Q}.lora_B.weight": drawn(3, 2)}, {}, {}, "factor is missing"),
    (lora(Q, 3, 5), {}, {}, "do not fit the base's"),
    (lora(Q, 4, 4), {}, {}, "do not fit the base's"),
    (lora(Q, 3, 4, 3), {}, {}, "of rank 2 do not fit"),
    (ON_Q | {f"{Q}.lora_B.weight": drawn(3, 3)}, {}, {}, "of rank 2 do not fit"),
    (ON_Q | {f"{Q}.lora_B.weight": drawn(3, 2, 1)}, {}, {}, "not a matrix"),
    (ON_Q, DORA, {}, "there is no magnitude"),
    (ON_Q | {MAGNITUDE: drawn(3)}, {}, {}, "there is a magnitude"),
    (ON_Q | {MAGNITUDE: drawn(4)}, DORA, {}, "expected 3 values"),
    (ON_Q | {f"{Q}.lora_B.bias": drawn(3)}, {}, {}, "disagree"),
    (ON_Q, {"lora_bias": True}, {}, "disagree"),
    (ON_Q | {f"{Q}.lora_B.bias": drawn(4)}, {"lora_bias": True}, {}, r"bias \[4\] on \[3\]"),
    (ON_EMBED | {f"{EMBED}.lora_B.bias": drawn(4)}, {"lora_bias": True}, {}, "has no bias"),
    *((TOKENS | {name: value}, LISTED, {}, "on one module cannot") for name, value in ON_EMBED.items()),
    *((TOKENS | {name: value}, LISTED, {}, "on one module cannot") for name, value in lora(EMBED, 6, 4).items()),
    (TOKENS, {"trainable_token_indices": {"embed_tokens": [1, 6]}}, {}, "trainable_token_indices: .*6"),
    (TOKENS, {"trainable_token_indices": {"embed_tokens": [1, 2], "model.embed_tokens": [1, 2]}}, {}, "found 2"),
    (OFFSETS | {"coord_offset_adapter.token_ids": torch.tensor([0, 6])}, {}, {}, "6"),
    (OFFSETS | {"coord_offset_adapter.embed_offset": drawn(2, 5)}, {}, {}, "rows of 5 values"),
    (ON_Q, {}, {f"{Q}.weight": drawn(3, 4).double()}, "expected BF16, F16, F32, found F64"),
    *((ON_Q | {f"{Q}.{part}weight": drawn(3, 4).to(kind)}, {"modules_to_save": saved}, {}, "the base's .* is F32")
      for part, saved in (("modules_to_save.default.", ["up_proj"]), ("base_layer.", []))
      for kind in (torch.int8, torch.float64)),
]  # fmt: skip


@pytest.mark.parametrize(("adapter", "settings", "base", "match"), REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, adapter, settings, base, match):
    base, folder = folders(tmp_path, adapter, settings, base)
    with pytest.raises(InputError, match=match):
        merge_quietly(base, folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("shape", "size"), [((3,), 1), ((3, 1), 1), ((1, 3), 1), ((3,), 0)])
def test_magnitudes_of_each_peft_scale_the_rows(tmp_path, shape, size):
    """Also those of factors that add nothing."""
    on_q = {name: value * (size if "_B" in name else 1) for name, value in ON_Q.items()}
    base, folder = folders(tmp_path, on_q | {MAGNITUDE: drawn(3).reshape(shape)}, DORA)
    merge_quietly(base, folder, tmp_path / "out")
    whole = BEFORE[f"{Q}.weight"] + 3 * product(on_q, Q)
    expected = whole * (drawn(3) / whole.norm(dim=1))[:, None]
    assert torch.allclose(read_all(tmp_path / "out")[f"{Q}.weight"], expected, atol=1e-5)


BIAS = {f"{Q}.bias": drawn(3) * 2}
ZERO = {name: value * (not name.endswith(("B", "B.weight", "offset"))) for name, value in {**ON_Q, **ON_EMBED}.items()}
NO_B = {name: value for name, value in ZERO.items() if name.startswith(Q)}


@pytest.mark.parametrize(
    ("adapter", "settings", "lost", "nothing", "changed"),
    [
        (ON_Q, {"bias": "none"}, 0, 0, 1),
        (ON_Q, {"bias": "lora_only"}, 1, 0, 1),
        (ON_Q, {"bias": "all"}, 2, 0, 1),
        (ON_Q | BIAS, {"bias": "all"}, 1, 0, 2),
        (ON_Q | {"model.norm.bias": drawn(4) * 2}, {"bias": "all", "modules_to_save": ["norm"]}, 1, 0, 2),
        (ON_Q | {"model.norm.bias": drawn(4) * 2}, {"bias": "lora_only", "modules_to_save": ["norm"]}, 1, 0, 2),
        (NO_B, {}, 0, 1, 0),  # all of it
        (NO_B | OFFSETS, {}, 0, 1, 1),
        (ZERO | {f"{EMBED}.base_layer.weight": 2 * drawn(6, 4)}, {}, 0, 1, 1),  # the table itself is another
        (NO_B | BIAS, {}, 0, 1, 1),
        (OFFSETS | {"coord_offset_adapter.embed_offset": torch.zeros(2, 4)} | ON_Q, {}, 0, 2, 1),
    ],
)  # fmt: skip
def test_what_is_lost_and_what_changes_nothing_is_counted(tmp_path, adapter, settings, lost, nothing, changed):
    base, folder = folders(tmp_path, adapter, settings)
    report = merge_quietly(base, folder, tmp_path / "out")
    told = [warning for warning in report.warnings if "bias: " in warning]
    assert [f"trained {lost} biases" in warning for warning in told] == [True] * bool(lost)
    told = [warning for warning in report.warnings if "was it trained" in warning]
    assert [(f"{nothing} of " in w, "the adapter changes nothing" in w) for w in told] == (
        [(changed > 0, changed == 0)] if nothing else []
    )
    assert report.changed == changed


@pytest.mark.parametrize("tied", [True, False])
def test_each_table_follows_its_own_tensors(tmp_path, tied):
    """A table in the adapter replaces the stored one, which a tied head is and another head is not."""
    base = {} if tied else {f"{HEAD}.weight": drawn(6, 4) - 1}
    base, folder = folders(tmp_path, {f"{EMBED}.base_layer.weight": 2 * drawn(6, 4)} | OFFSETS, {}, base, tied)
    report = merge_quietly(base, folder, tmp_path / "out")
    found = read_all(tmp_path / "out")
    expected = {f"{EMBED}.weight": with_rows(2 * drawn(6, 4), [5, 2], drawn(2, 4), added=True)}
    expected |= {} if tied else {f"{HEAD}.weight": with_rows(drawn(6, 4) - 1, [5, 2], drawn(2, 4), added=True)}
    assert {name: value.tolist() for name, value in found.items() if name.startswith((EMBED, HEAD))} == {
        name: value.tolist() for name, value in expected.items()
    }
    assert not report.untied and report.changed == len(expected)
    assert not [warning for warning in report.warnings if "embedding and head differ" in warning]


def test_layers_that_are_no_matrices_are_none_whose_factors_were_lost(tmp_path):
    settings = {"target_modules": r".*(up_proj|norm)"}
    base, folder = folders(tmp_path, ON_Q, settings, {"model.norm.weight": drawn(4)})
    assert merge_quietly(base, folder, tmp_path / "out").changed == 1


def test_keep_lora_leaves_only_rows_to_merge_and_changes_of_layers_to_the_adapter(tmp_path):
    base, folder = folders(tmp_path, ON_Q | OFFSETS | ON_HEAD, {})
    report = merge(base, folder, tmp_path / "out", keep_lora=tmp_path / "lora", quiet=True)
    assert report.verification is None  # PEFT merges all of it, which is not what is written
    rows = read_all(tmp_path / "out")
    assert torch.equal(rows[f"{Q}.weight"], BEFORE[f"{Q}.weight"])
    for name, offsets in ((EMBED, drawn(2, 4)), (HEAD, 2 * drawn(2, 4))):
        assert torch.equal(rows[f"{name}.weight"], with_rows(TABLE, [5, 2], offsets, added=True))
    assert {*read_all(tmp_path / "lora")} == {f"base_model.model.{name}" for name in ON_Q}
    for options in ({}, {"keep_lora": tmp_path / "other"}):  # the rows would be added twice
        with pytest.raises(InputError, match=r"its rows are merged into .*out already"):
            merge_quietly(tmp_path / "out", folder, tmp_path / "again", **options)
    merge_quietly(tmp_path / "out", tmp_path / "lora", tmp_path / "whole")
    merge_quietly(base, folder, tmp_path / "at-once")
    whole, at_once = read_all(tmp_path / "whole"), read_all(tmp_path / "at-once")
    assert whole.keys() == at_once.keys() and all(torch.equal(whole[name], at_once[name]) for name in whole)


def test_lora_that_is_kept_states_itself_alone_and_comes_with_what_asks_it(tmp_path):
    """Factors of tables are merged, and the card names OUT where it named the base."""
    settings = {"bias": "lora_only", "layers_to_transform": [0], "exclude_modules": ["x"], "modules_to_save": ["norm"]}
    given = ON_Q | ON_EMBED | lora(HEAD, 6, 4)
    base, folder = folders(tmp_path, given | {"model.norm.bias": drawn(4)}, settings)
    asking = {"tokenizer_config.json", "chat_template.jinja", "merges.txt", "video_preprocessor_config.json"}
    for name in (*asking, "notes.txt", "optimizer.pt"):
        (folder / name).write_text("{}")
    for number, card in enumerate(({"format": 1}, {"format": 1, "base": weights_digest(base)})):
        out, kept = tmp_path / f"out{number}", tmp_path / f"lora{number}"
        (folder / "coordexp.json").write_text(json.dumps(card))
        merge_quietly(base, folder, out, keep_lora=kept)
        assert {*read_all(kept)} == {f"base_model.model.{name}" for name in ON_Q}
        written = read_json(kept / "adapter_config.json")
        assert (written["target_modules"], written["bias"], written["r"]) == ([Q], "none", 2)
        emptied = ("modules_to_save", "trainable_token_indices", "exclude_modules", "layers_to_transform")
        assert {written[name] for name in emptied} == {None} and written["base_model_name_or_path"] == str(out)
        assert read_json(kept / "coordexp.json") == card | ({"base": weights_digest(out)} if number else {})
        assert {path.name for path in kept.iterdir()} == asking | {
            *("adapter_config.json", "adapter_model.safetensors", "coordexp.json", "export.json")
        }
        assert not (out / "coordexp.json").exists()
    for place in (base, folder, tmp_path / "out"):
        with pytest.raises(InputError, match="is, contains or lies inside"):
            merge_quietly(base, folder, tmp_path / "out", keep_lora=place / "lora")


@pytest.mark.parametrize(
    ("adapter", "settings", "told"),
    [(ON_EMBED, {}, "no LoRA beside"), (ON_Q | ON_EXPERTS | OFFSETS, OF_EXPERTS, "LoRA of experts")],
)
def test_lora_that_cannot_stay_an_adapter_is_refused(tmp_path, adapter, settings, told):
    base, folder = folders(tmp_path, adapter, settings)
    with pytest.raises(InputError, match=told):
        merge_quietly(base, folder, tmp_path / "out", keep_lora=tmp_path / "lora")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base"]


TWICE = {f"{HEAD}.lora_A.weight": ON_EMBED[f"{EMBED}.lora_embedding_B"].T.contiguous()}
TWICE |= {f"{HEAD}.lora_B.weight": ON_EMBED[f"{EMBED}.lora_embedding_A"].T.contiguous()}


@pytest.mark.parametrize(
    ("change", "settings", "tied"),
    [
        ({}, {}, True),
        ({}, {"alpha_pattern": {"lm_head": 5}}, False),
        ({f"{HEAD}.lora_A.weight": 2 * TWICE[f"{HEAD}.lora_A.weight"]}, {}, False),
        ({f"{HEAD}.lora_B.weight": 2 * TWICE[f"{HEAD}.lora_B.weight"]}, {}, False),
        (lora(HEAD, 6, 4, 3), {"rank_pattern": {"lm_head": 3}, "alpha_pattern": {"lm_head": 9}}, False),
        (OFFSETS, {}, True),
        (OFFSETS | ON_HEAD, {}, False),
    ],
)
def test_lora_that_is_stored_twice_keeps_the_tie_only_where_both_are_alike(tmp_path, change, settings, tied):
    base, folder = folders(tmp_path, ON_EMBED | TWICE | change, settings)
    report = merge_quietly(base, folder, tmp_path / "out")
    assert report.untied is not tied and (f"{HEAD}.weight" in read_all(tmp_path / "out")) is not tied


def test_offsets_without_an_id_change_nothing(tmp_path):
    none = {"coord_offset_adapter.token_ids": torch.zeros(0, dtype=torch.int64)}
    none |= {f"coord_offset_adapter.{name}_offset": torch.zeros(0, 4) for name in ("embed", "head")}
    base, folder = folders(tmp_path, ON_Q | none, {})
    report = merge_quietly(base, folder, tmp_path / "out")
    assert report.changed == 1 and not [warning for warning in report.warnings if "do not change" in warning]


def test_dtype_is_that_of_floats_alone_and_files_keep_their_names(tmp_path):
    base, folder = folders(tmp_path, ON_Q, {}, {"counts": torch.arange(3)})
    (base / "model.safetensors").rename(base / "model-00001-of-00001.safetensors")
    weight_map = dict.fromkeys([*BEFORE, "counts"], "model-00001-of-00001.safetensors")
    (base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    tensors = read_all(base)
    save_file(tensors, base / "model-00001-of-00001.safetensors")  # without metadata, which transformers refuses
    merge_quietly(base, folder, tmp_path / "out", dtype="float16")
    assert read_safetensors(tmp_path / "out" / "model-00001-of-00001.safetensors").metadata == {"format": "pt"}
    assert {name: str(value.dtype) for name, value in read_all(tmp_path / "out").items()} == {
        name: "torch.int64" if name == "counts" else "torch.float16" for name in weight_map
    }
    assert read_json(tmp_path / "out" / "model.safetensors.index.json")["weight_map"] == weight_map


def test_chunks_and_copies_of_any_size_give_the_same_bytes(tmp_path, monkeypatch):
    large = {f"{EMBED}.weight": drawn(300, 4), "model.other": drawn(70, 5)}
    offsets = {
        "coord_offset_adapter.token_ids": torch.tensor([299, 70, 0]),
        "coord_offset_adapter.embed_offset": drawn(3, 4),
    }
    offsets["coord_offset_adapter.head_offset"] = torch.zeros(0, 4)
    on_embed = {f"{EMBED}.lora_embedding_A": drawn(2, 300), f"{EMBED}.lora_embedding_B": drawn(4, 2)}
    base, folder = folders(tmp_path, ON_Q | on_embed | offsets | ON_EXPERTS, OF_EXPERTS, large)
    merge_quietly(base, folder, tmp_path / "whole")
    monkeypatch.setattr(recipe, "_CHUNK_VALUES", 1)
    monkeypatch.setattr(write, "_COPY_BYTES", 7)
    merge_quietly(base, folder, tmp_path / "small")
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    monkeypatch.setattr(os, "copy_file_range", lambda *given: (_ for _ in ()).throw(OSError(errno.EXDEV, "no")))
    merge_quietly(base, folder, tmp_path / "read")
    assert torch.get_num_threads() == threads + 1  # writing takes one, and gives it back
    torch.set_num_threads(threads)
    assert same_files(tmp_path / "whole", tmp_path / "small") and same_files(tmp_path / "whole", tmp_path / "read")


@pytest.mark.parametrize("row", [0, 70, 299])
def test_row_that_overflows_is_named_in_each_chunk_and_rows_of_other_chunks_are_copied(tmp_path, monkeypatch, row):
    monkeypatch.setattr(recipe, "_CHUNK_VALUES", 1)
    offsets = OFFSETS | {"coord_offset_adapter.token_ids": torch.tensor([row, row - 1 if row else 1])}
    table = drawn(300, 4).half()
    base, folder = folders(tmp_path, offsets, {}, {f"{EMBED}.weight": table})
    merge_quietly(base, folder, tmp_path / "out")
    ids, expected = offsets["coord_offset_adapter.token_ids"], table.float()
    expected[ids] += drawn(2, 4)
    assert torch.equal(read_all(tmp_path / "out")[f"{EMBED}.weight"], expected.half())
    large = read_all(folder)
    large["base_model.model.coord_offset_adapter.embed_offset"][0, 1] = 1e5
    save_file(large, folder / "adapter_model.safetensors", {"format": "pt"})
    with pytest.raises(ExportError, match=f"embed_tokens.weight: row {row} is not finite in F16"):
        merge_quietly(base, folder, tmp_path / "again")


def test_conversions_of_trained_rows_merge_to_the_same_checkpoint(tmp_path):
    """Lists of two tables whose ids differ become one list; rows of a table that is neither stay as they are.

    What is written is aligned, with the metadata of the adapter's file.
    """
    rows = TOKENS | {f"{HEAD}.token_adapter.trainable_tokens_delta": 2 * drawn(2, 4)}
    rows["model.other.token_adapter.trainable_tokens_delta"] = drawn(1, 5)
    lists = {"trainable_token_indices": {"embed_tokens": [4, 1], "lm_head": [1, 3], "other": [2]}}
    stored = {f"{HEAD}.weight": drawn(6, 4) - 1, "model.other.weight": drawn(3, 5)}
    base, folder = folders(tmp_path, rows | ON_Q, lists, stored, tied=False)
    save_file(read_all(folder), folder / "adapter_model.safetensors", {"format": "pt", "of": "another program"})
    report = from_peft(base, folder, tmp_path / "offsets")
    assert (report.rows, report.tables) == (3, 2)
    back = to_peft(base, tmp_path / "offsets", tmp_path / "rows", verify=False)
    assert (back.rows, back.tables) == (3, 2)
    for name in ("adapter", "offsets", "rows"):
        file = read_safetensors(tmp_path / name / "adapter_model.safetensors")
        assert file.metadata == {"format": "pt", "of": "another program"}
        assert all(tensor.start % ITEM_BYTES[tensor.dtype] == 0 for tensor in file.tensors)
        merge_quietly(base, tmp_path / name, tmp_path / f"of-{name}")
    whole = read_all(tmp_path / "of-adapter")
    assert not torch.equal(whole[f"{HEAD}.weight"], drawn(6, 4) - 1)
    for name in ("offsets", "rows"):
        found = read_all(tmp_path / f"of-{name}")
        assert found.keys() == whole.keys()
        assert all(torch.allclose(found[key], whole[key], atol=1e-6) for key in whole)
    assert torch.equal(whole["model.other.weight"][2], drawn(1, 5)[0])
    assert read_json(tmp_path / "rows" / "adapter_config.json")["modules_to_save"] is None


@pytest.mark.parametrize("listed", [{"lm_head": [1, 3]}, {"embed_tokens": [4, 1], "lm_head": [1, 3]}])
def test_rows_of_a_tied_head_become_offsets_of_its_own(tmp_path, listed):
    rows = {
        f"{name}.token_adapter.trainable_tokens_delta": drawn(2, 4)
        for name in (EMBED, HEAD)
        if name[-4:] in str(listed)
    }
    base, folder = folders(tmp_path, rows, {"trainable_token_indices": listed})
    assert from_peft(base, folder, tmp_path / "offsets").tables == 2
    for name in ("adapter", "offsets"):
        assert merge_quietly(base, tmp_path / name, tmp_path / f"of-{name}").untied
    one, other = (read_all(tmp_path / f"of-{name}") for name in ("adapter", "offsets"))
    assert one.keys() == other.keys() and all(torch.allclose(one[key], other[key], atol=1e-6) for key in one)


@pytest.mark.parametrize("verify", [True, False])
def test_rows_for_plain_peft_have_the_type_of_the_base_and_what_was_verified_is_recorded(tmp_path, monkeypatch, verify):
    monkeypatch.setattr(tensors, "verify_rows", lambda *given: {"compared": 3})
    base, folder = folders(tmp_path, OFFSETS, {}, {f"{EMBED}.weight": TABLE.half()})
    to_peft(base, folder, tmp_path / "out", verify=verify)
    (rows,) = (value for name, value in read_all(tmp_path / "out").items() if "trainable_tokens" in name)
    assert torch.equal(rows, (TABLE.half()[[5, 2]].float() + drawn(2, 4)).half())
    (entry,) = read_json(tmp_path / "out" / "export.json")["history"]
    assert entry["kind"] == "to-peft" and entry.get("verification") == ({"compared": 3} if verify else None)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, None),
        ({f"{HEAD}.weight": None}, f"trains no row of {HEAD}.weight"),
        ({f"{EMBED}.weight": None}, f"trains no row of {EMBED}.weight"),
        *(({f"{name}.weight": row}, f"other rows of {name}.weight") for name in (EMBED, HEAD) for row in (5, 2, 0)),
    ],
)
def test_each_row_that_plain_peft_loads_is_compared(tmp_path, monkeypatch, change, told):
    """Rows of a list, and those beside it."""
    stored = {f"{EMBED}.weight": TABLE, f"{HEAD}.weight": drawn(6, 4) - 1}
    base, folder = folders(tmp_path, OFFSETS, {}, stored, tied=False)
    loaded = {name: with_rows(table, [5, 2], drawn(2, 4), added=True) for name, table in stored.items()}
    for name, row in change.items():
        if row is None:
            del loaded[name]
        else:
            loaded[name][row, 3] += 0.01
    monkeypatch.setattr(tensors, "empty_model", lambda base: None)
    monkeypatch.setattr(tensors, "_layers", lambda *given: {"tables": lambda: loaded, "q": lambda: {Q: drawn(3, 4)}})
    checkpoint, adapter = open_checkpoint(base), open_adapter(folder)
    if told is None:
        found = tensors.verify_rows(checkpoint, adapter, adapter)
        assert found["compared"] == 3 and found["largest_error"] < 1e-6
    else:
        with pytest.raises(ExportError, match=told):
            tensors.verify_rows(checkpoint, adapter, adapter)


@pytest.mark.parametrize("row", range(5))
def test_each_row_of_a_tensor_is_compared_in_blocks_of_any_size(tmp_path, monkeypatch, row):
    """Its error, and that it changes at all."""
    before, expected, wrong = drawn(5, 4), drawn(5, 4), drawn(5, 4)
    expected[row] += 1
    wrong[row] += torch.tensor([1, 1, 1.1, 1])
    save_file({"before": before, "right": expected, "wrong": wrong}, tmp_path / "f.safetensors")
    info = {tensor.name: tensor for tensor in read_safetensors(tmp_path / "f.safetensors").tensors}
    for size in (5, 2, 1):
        blocks = [(lo, min(lo + size, 5)) for lo in range(0, 5, size)]
        monkeypatch.setattr(TensorInfo, "blocks", lambda self, blocks=blocks: iter(blocks))
        assert tensors._compare(expected, info["before"], info["right"]) == (0, pytest.approx(1), True)
        with pytest.raises(ExportError, match=r"wrong differs from PEFT's by 0\.1"):
            tensors._compare(expected, info["before"], info["wrong"])


@pytest.mark.parametrize(
    ("convert", "adapter", "settings"), [(from_peft, TOKENS, LISTED), (partial(to_peft, verify=False), OFFSETS, {})]
)
def test_conversions_check_base_and_vocabulary_of_the_card(tmp_path, convert, adapter, settings):
    base, folder = folders(tmp_path, adapter, settings)
    for place in (base, folder):
        with pytest.raises(InputError, match="lies inside the input"):
            convert(base, folder, place / "out")
    told = " ".join(convert(base, folder, tmp_path / "without").warnings)
    assert "names no digest" in told and ("carries no fingerprint" in told) is (convert is from_peft)
    card = {"format": 1, "fingerprint": "f", "base": "another"}
    (folder / "coordexp.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match="trained on another base"):
        convert(base, folder, tmp_path / "out")
    told = " ".join(convert(base, folder, tmp_path / "out", force=True).warnings)
    assert "another base" in told and "cannot be compared" in told and "carries no fingerprint" not in told
    assert read_json(tmp_path / "out" / "coordexp.json") == card
    (base / "tokenizer.json").write_text('{"model": {"vocab": {}}, "added_tokens": []}')
    with pytest.raises(InputError, match="fingerprint f"):
        convert(base, folder, tmp_path / "again", force=True)
    (base / "tokenizer.json").unlink()
    folder.rename(tmp_path / "sft")
    folder.mkdir()
    (tmp_path / "sft").rename(folder / "sft")
    told = convert(base, folder, tmp_path / "named", force=True).warnings
    assert [f"{folder / 'sft'} is taken" in warning for warning in told].count(True) == 1
    tables = read_all(base)
    save_file(tables | {f"{EMBED}.weight": tables[f"{EMBED}.weight"].double()}, base / "model.safetensors")
    with pytest.raises(InputError, match=r"embed_tokens.weight: expected BF16, F16, F32, found F64"):
        convert(base, folder, tmp_path / "again", force=True)


def test_rows_of_one_table_leave_the_other_as_it_is(tmp_path):
    """A LoRA of the head gives it no rows, and an untied head without any gets offsets of 0."""
    base = {f"{HEAD}.weight": drawn(6, 4) - 1}
    base, folder = folders(tmp_path, TOKENS | lora(HEAD, 6, 4), LISTED, base, tied=False)
    assert from_peft(base, folder, tmp_path / "offsets").tables == 2
    tensors = {name.rpartition(".")[2]: value for name, value in read_all(tmp_path / "offsets").items()}
    assert tensors["token_ids"].tolist() == [1, 4] and not tensors["head_offset"].any()
    assert torch.allclose(tensors["embed_offset"], drawn(2, 4)[[1, 0]] - TABLE[[1, 4]])


def test_modules_of_older_names_are_those_of_today(tmp_path, monkeypatch):
    """The name of a layer itself, of a tensor in it, and those that did not change."""
    base, folder = folders(tmp_path, {**ON_Q, "model.norm.bias": drawn(4)}, {})
    adapter = open_adapter(folder)
    monkeypatch.setattr(plan, "empty_model", lambda base: None)
    monkeypatch.setattr(
        plan,
        "renamed_modules",
        lambda model, names: {Q: "new.q", "model.norm": "new.norm"} if {Q, "model.norm"} <= {*names} else {},
    )
    found = plan._with_todays_names(open_checkpoint(base), adapter)
    assert {*found.factors} == {"new.q"} and {*found.rewritten} == {"new.norm.bias"}
