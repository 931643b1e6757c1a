"""Steps on weight rows: PEFT's arithmetic in chunks, and factors that do not fit."""

import shutil

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tiny_checkpoint import edit_json, edit_tensors, make_base, plain_recipe, refused

from coord_exporter.checkpoint import recipe
from coord_exporter.checkpoint.read import read_safetensors
from coord_exporter.steps import BiasStep, ExpertStep, LoraStep, RowsStep


def test_lora_step_in_chunks_has_the_bits_of_one_product(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    weight, a, b, m = (torch.randn(s, generator=generator) for s in ((2100, 700), (12, 700), (2100, 12), (2100,)))
    save_file({"a": a, "b": b, "m": m}, tmp_path / "f.safetensors")
    infos = {t.name: t for t in read_safetensors(tmp_path / "f.safetensors").tensors}
    monkeypatch.setattr(recipe, "_CHUNK_VALUES", 128 * 700)
    for magnitude in (None, infos["m"]):
        change = LoraStep(infos["a"], infos["b"], 0.3, magnitude).open()
        chunks = list(plain_recipe(2100, 700).chunks())
        assert len(chunks) == 16
        found = torch.cat([change(weight[lo:hi].clone(), lo, hi) for lo, hi in chunks])
        expected = weight + (b @ a) * 0.3
        if magnitude is not None:
            expected = (m / torch.linalg.norm(expected, dim=1)).view(-1, 1) * expected
        assert torch.equal(found, expected)


@example(ids=[0], lo=0, size=1)
@example(ids=[19], lo=0, size=20)  # the last of a block
@example(ids=[20], lo=0, size=20)  # the first after it
@given(ids=st.lists(st.integers(0, 400), unique=True, max_size=30), lo=st.integers(0, 400), size=st.integers(0, 100))
def test_rows_step_touches_exactly_the_chunks_with_its_ids(ids, lo, size):
    step = RowsStep(tuple(ids), None)
    assert step.touches(lo, lo + size) == any(lo <= i < lo + size for i in ids)


def test_only_a_step_that_adds_nothing_but_0_is_nothing(tmp_path):
    """One value is enough, wherever it stands, and rows that are replaced or scaled change even by 0."""
    zero, one = torch.zeros(3, 3), torch.zeros(3, 3)
    one[2, 1] = 1
    save_file(
        {"zero": zero, "one": one, "none": zero[:, 0].clone(), "bias": one[:, 1].clone()}, tmp_path / "f.safetensors"
    )
    info = {tensor.name: tensor for tensor in read_safetensors(tmp_path / "f.safetensors").tensors}
    found = {}
    for a, b in (("zero", "zero"), ("one", "zero"), ("zero", "one"), ("one", "one")):
        found[f"lora {a} {b}"] = LoraStep(info[a], info[b], 1.0).is_nothing
        found[f"experts {a} {b}"] = ExpertStep(info[a], info[b], 1.0, 1, transposed=False).is_nothing
        found[f"dora {a} {b}"] = LoraStep(info[a], info[b], 1.0, info["bias"]).is_nothing
    for name in ("none", "bias"):
        found[f"bias {name}"] = BiasStep(info[name], 1.0).is_nothing
    for name, rows in (("zero", info["zero"]), ("one", info["one"]), ("fresh zero", zero), ("fresh one", one)):
        for added in (True, False):
            found[f"rows {name} {added}"] = RowsStep((0, 1, 2), rows, added).is_nothing
    nothing = {f"{kind} {values}" for kind in ("lora", "experts") for values in ("zero zero", "one zero", "zero one")}
    nothing |= {"bias none", "rows zero True", "rows fresh zero True"}
    assert {name for name, is_nothing in found.items() if is_nothing} == nothing


def test_lora_step_refuses_another_width(files):
    shutil.rmtree(files / "base")
    make_base(files / "base", False, torch.bfloat16, hidden=96)
    refused(files, "do not fit the base's weight .* trained on another base")


def test_lora_step_refuses_another_rank(files):
    edit_json(files / "adapter" / "adapter_config.json", r=4)
    refused(files, "of rank 4 do not fit")


@pytest.mark.parametrize("module", ["lm_head", "model.language_model.embed_tokens"])
def test_lora_step_refuses_dora_on_a_table(files, adapters, module):
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
