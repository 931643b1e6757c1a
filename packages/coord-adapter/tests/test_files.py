"""What is in the file, every way back from it, and the vanilla PEFT adapter."""

import json
import sys
import warnings

import pytest
import torch
import transformers
from offset_tiny import IDS, H, batch, logits, lora, peft_model, prepared, ready, tables_of, tiny
from packaging.version import Version
from peft import AutoPeftModel, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLForConditionalGeneration

from coord_adapter import MODULE_NAME, InputError, load_adapter, read_offsets, save_as_trainable_tokens
from coord_adapter.format import WEIGHTS_FILE

EXPORTABLE = [(True, True), (False, True), (False, False)]
NAMES = ["base_tied-head_tied", "base_untied-head_tied", "base_untied-head_own"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory, combination):
    """(folder, logits of the trained model, base's tie mode) of an adapter of each combination; not to be changed."""
    (tied, tie_head), folder = combination, tmp_path_factory.mktemp("saved")
    model = peft_model(tied, tie_head, fingerprint="f00d")
    expected = logits(model)
    model.save_pretrained(folder)
    return folder, expected, tied


@pytest.fixture
def folder(tmp_path):
    model = peft_model()
    logits(model)
    model.save_pretrained(tmp_path)
    return tmp_path


def rewrite(folder, change):
    """Write the file again as other code might have written it."""
    tensors = load_file(folder / WEIGHTS_FILE)
    change(tensors)
    save_file(tensors, folder / WEIGHTS_FILE)


def key(name):
    return f"base_model.model.{MODULE_NAME}.{name}"


def set_tensor(name, value):
    return lambda tensors: tensors.__setitem__(key(name), value(tensors[key(name)]))


def test_file_holds_ids_tables_and_fingerprint_and_no_vocabulary(saved):
    folder, *_ = saved
    tensors = load_file(folder / WEIGHTS_FILE)
    ours = {name.rpartition(".")[2] for name in tensors if MODULE_NAME in name}
    assert ours == {"token_ids", "embed_offset", "head_offset", "fingerprint", "format_version"}
    assert tensors[key("token_ids")].tolist() == IDS
    assert bytes(tensors[key("fingerprint")].tolist()) == b"f00d"
    assert all("lora_" in name or MODULE_NAME in name for name in tensors)


def test_load_adapter_restores_logits_bitwise(saved):
    folder, expected, tied = saved
    assert torch.equal(logits(load_adapter(tiny(tied), folder)), expected)
    assert torch.equal(logits(load_adapter(ready(tied), folder)), expected)


@pytest.mark.parametrize("low_cpu_mem_usage", [False, True])
def test_plain_peft_restores_logits_on_a_prepared_base(saved, low_cpu_mem_usage):
    folder, expected, tied = saved
    model = PeftModel.from_pretrained(ready(tied), folder, low_cpu_mem_usage=low_cpu_mem_usage)
    assert torch.equal(logits(model), expected)


@pytest.mark.parametrize("tie_head", [True, False])
def test_plain_peft_takes_sizes_and_tie_mode_from_the_file(saved, tie_head):
    folder, expected, tied = saved
    model = PeftModel.from_pretrained(ready(tied, ids=[3, 1, 2], tie_head=tie_head), folder)
    assert torch.equal(logits(model), expected)


def test_transformers_load_adapter_restores_logits_on_an_equal_base_or_says_that_it_cannot(saved):
    folder, expected, tied = saved
    tie_head = read_offsets(folder).tied
    base = ready(tied, tie_head=tie_head, fingerprint="f00d")
    if Version(transformers.__version__) < Version("5.18"):
        with pytest.raises(InputError, match=r"loads LoRA alone, .*use coord_adapter\.load_adapter\(BASE"):
            base.load_adapter(folder)
        return
    base.load_adapter(folder)
    torch.testing.assert_close(logits(base.eval()), expected)


@pytest.mark.slow
def test_load_adapter_takes_the_name_and_what_peft_takes(folder):
    model = load_adapter(tiny(), folder, adapter_name="b")
    assert model.active_adapters == ["b"] and not any(p.requires_grad for p in model.parameters())
    half = load_adapter(tiny(dtype=torch.bfloat16), folder, autocast_adapter_dtype=False)
    kinds = {p.dtype for name, p in half.named_parameters() if "lora_" in name}
    assert kinds == {torch.bfloat16}


def test_load_adapter_continues_training(saved):
    folder, _, tied = saved
    model = load_adapter(tiny(tied), folder, is_trainable=True).train()
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    tables = dict(tables_of(model).named_parameters())
    assert all(table.grad.abs().sum() > 0 for table in tables.values())
    assert len(tables) == (1 if read_offsets(folder).tied else 2)


def test_saving_again_writes_the_same_file(saved, tmp_path):
    folder, _, tied = saved
    load_adapter(tiny(tied), folder).save_pretrained(tmp_path / "again")
    first, second = load_file(folder / WEIGHTS_FILE), load_file(tmp_path / "again" / WEIGHTS_FILE)
    assert set(first) == set(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_read_offsets_needs_no_model(saved):
    folder, *_ = saved
    offsets = read_offsets(folder)
    assert offsets.ids.tolist() == IDS
    assert offsets.embed.shape == (len(IDS), H)
    assert offsets.tied is (offsets.head is None)
    assert offsets.fingerprint == "f00d"
    assert read_offsets(folder / WEIGHTS_FILE).ids.tolist() == IDS


@pytest.mark.parametrize("how", ["peft", "auto", "transformers"])
def test_plain_peft_refuses_an_unprepared_base(folder, tmp_path, how):
    base = tiny()
    if how == "auto":
        base.save_pretrained(tmp_path / "base")
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = str(tmp_path / "base")
        (folder / "adapter_config.json").write_text(json.dumps(config))
    load = {
        "peft": lambda: PeftModel.from_pretrained(base, folder),
        "auto": lambda: AutoPeftModel.from_pretrained(folder),
        "transformers": lambda: base.load_adapter(folder),
    }
    with pytest.raises(ValueError, match="needs_load_adapter_of_coord_adapter"):
        load[how]()


def test_load_refuses_another_vocabulary_and_names_both(folder):
    for load in (
        lambda: load_adapter(tiny(), folder, fingerprint="beef"),
        lambda: load_adapter(ready(fingerprint="beef"), folder),
        lambda: PeftModel.from_pretrained(ready(fingerprint="beef"), folder),
    ):
        with pytest.raises((ValueError, RuntimeError), match=r"(?s)f00d.*beef"):
            load()


@pytest.mark.parametrize("installed", [None, "beef"])
def test_load_adapter_leaves_the_base_as_it_was_when_it_refuses(folder, installed):
    """Also where the tables are there: their fingerprint is compared before PEFT wraps anything."""
    base = tiny() if installed is None else ready(fingerprint=installed)
    before = set(base.state_dict())
    with pytest.raises(InputError, match=rf"{WEIGHTS_FILE}: vocabulary fingerprint mismatch: .*f00d.*beef"):
        load_adapter(base, folder, fingerprint=None if installed else "beef")
    with pytest.raises(InputError, match=r"vocabulary fingerprint mismatch: .*f00d.*beef"):
        load_adapter(ready(), folder, fingerprint="beef")  # tables that state none
    assert set(base.state_dict()) == before


@pytest.mark.slow
def test_load_warns_of_a_missing_fingerprint(tmp_path):
    model = peft_model(fingerprint=None)
    expected = logits(model)
    model.save_pretrained(tmp_path)
    for base in (tiny(), ready(), ready(fingerprint="f00d")):
        with pytest.warns(UserWarning, match="no vocabulary fingerprint"):
            again = load_adapter(base, tmp_path)
        assert torch.equal(logits(again), expected)
    with pytest.warns(UserWarning, match="expected: f00d"):
        again = PeftModel.from_pretrained(ready(fingerprint="f00d"), tmp_path)
    assert tables_of(again).fingerprint_text == "f00d"


def test_load_warns_of_nothing_when_fingerprints_agree(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # ours; PEFT meets deprecated names in newer Transformers
        warnings.filterwarnings("ignore", message="Could not find a config file")
        load_adapter(ready(fingerprint="f00d"), folder, fingerprint="f00d")


def test_load_adapter_takes_a_file_with_nothing_but_tables(folder):
    expected = logits(load_adapter(tiny(), folder))
    rewrite(folder, lambda tensors: [tensors.pop(key(name)) for name in ("fingerprint", "format_version")])
    for base in (tiny(), ready(fingerprint="f00d")):
        with pytest.warns(UserWarning, match="no vocabulary fingerprint"):
            model = load_adapter(base, folder)
        assert torch.equal(logits(model), expected)
        assert f"base_model.model.{MODULE_NAME}.modules_to_save.default.fingerprint" in model.state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_tensor("embed_offset", lambda t: t[:0].clone()), "ZeRO-3"),
        (set_tensor("embed_offset", lambda t: t[:, :7].clone()), r"\(43, 7\), expected \(43, 64\)"),
        (set_tensor("head_offset", lambda t: torch.ones(5, H)), "head_offset"),
        (set_tensor("token_ids", lambda t: t + 100), "lies outside the 300 rows"),
        (set_tensor("token_ids", lambda t: t.clamp(max=270)), "token_ids: id 270 occurs twice"),
        (set_tensor("format_version", lambda t: t + 9), "update coord-adapter"),
    ],
    ids=["zero rows", "hidden size", "head rows", "vocabulary", "repeated ids", "version"],
)
@pytest.mark.parametrize("load", [load_adapter, PeftModel.from_pretrained], ids=["ours", "peft"])
def test_load_refuses_a_file_that_does_not_fit(folder, change, message, load):
    rewrite(folder, change)
    with pytest.raises((ValueError, RuntimeError), match=message):
        load(ready(fingerprint="f00d"), folder)


def test_ignore_mismatched_sizes_cannot_drop_the_tables(folder):
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        PeftModel.from_pretrained(ready(ids=IDS[:10]), folder, ignore_mismatched_sizes=True)


def test_load_adapter_names_a_folder_without_offsets(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_adapter(tiny(), tmp_path / "nowhere")
    rewrite(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if MODULE_NAME in name])
    with pytest.raises(ValueError, match="no coordinate offsets"):
        load_adapter(tiny(), folder)
    (folder / WEIGHTS_FILE).write_bytes(b"not safetensors")
    with pytest.raises(ValueError, match="not a readable safetensors"):
        load_adapter(tiny(), folder)


def test_load_adapter_refuses_a_base_without_values(folder):
    with pytest.raises(ValueError, match=r"meta device.*from_pretrained"):
        load_adapter(tiny().to("meta"), folder)


def test_load_adapter_refuses_a_file_that_peft_would_not_load(folder):
    peft_model(ids=IDS[:9]).save_pretrained(folder / "other")
    (folder / "other" / WEIGHTS_FILE).rename(folder / "best.safetensors")
    with pytest.raises(ValueError, match=r"best\.safetensors: expected an adapter folder with adapter_model"):
        load_adapter(tiny(), folder / "best.safetensors")
    assert torch.equal(logits(load_adapter(tiny(), folder / WEIGHTS_FILE)), logits(load_adapter(tiny(), folder)))


def test_load_adapter_refuses_a_wrapped_base(folder):
    with pytest.raises(ValueError, match=r"load_adapter\(path, adapter_name\)"):
        load_adapter(peft_model(), folder)


@pytest.mark.parametrize(("tied", "tie_head"), EXPORTABLE, ids=NAMES)
def test_vanilla_adapter_gives_equal_logits_merged_or_not(tmp_path, tied, tie_head):
    model = peft_model(tied, tie_head)
    expected = logits(model)
    save_as_trainable_tokens(model, tmp_path / "vanilla")
    vanilla = PeftModel.from_pretrained(tiny(tied), tmp_path / "vanilla").eval()
    torch.testing.assert_close(logits(vanilla), expected, rtol=1e-4, atol=1e-4)
    merged = vanilla.merge_and_unload()
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    again = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path / "merged").eval()
    torch.testing.assert_close(logits(again), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits(model), expected)


def test_vanilla_adapter_loads_without_this_package(tmp_path, monkeypatch):
    model = peft_model()
    save_as_trainable_tokens(model, tmp_path / "vanilla")
    expected, base = logits(model), tiny()
    for name in [name for name in sys.modules if name.startswith("coord_")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises an ImportError
    loaded = PeftModel.from_pretrained(base, tmp_path / "vanilla").eval()
    torch.testing.assert_close(logits(loaded), expected, rtol=1e-4, atol=1e-4)


def test_vanilla_file_names_nothing_of_this_package(tmp_path):
    save_as_trainable_tokens(peft_model(tied=False, modules_to_save=["merger"]), tmp_path / "vanilla")
    config = json.loads((tmp_path / "vanilla" / "adapter_config.json").read_text())
    assert config["trainable_token_indices"] == {"embed_tokens": IDS, "lm_head": IDS}
    assert config["modules_to_save"] == ["merger"] and config["inference_mode"] is True
    assert config["auto_mapping"]["base_model_class"] == "Qwen3VLForConditionalGeneration"
    names = load_file(tmp_path / "vanilla" / "adapter_model.safetensors")
    assert not [name for name in names if "coord_offset" in name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vanilla"]


@pytest.mark.slow
def test_vanilla_adapter_of_a_bfloat16_base_differs_by_rounding_alone(tmp_path):
    model = peft_model(tied=False, dtype=torch.bfloat16)
    save_as_trainable_tokens(model, tmp_path / "vanilla")
    vanilla = PeftModel.from_pretrained(tiny(False, torch.bfloat16), tmp_path / "vanilla").eval()
    expected = logits(model).float()
    assert (logits(vanilla).float() - expected).abs().max() < 2**-5 * expected.abs().max()


def test_vanilla_adapter_is_refused_where_peft_cannot_express_it(tmp_path):
    with pytest.raises(ValueError, match="bake_offsets"):
        save_as_trainable_tokens(peft_model(True, False), tmp_path / "vanilla")
    with pytest.raises(ValueError, match="no active PEFT adapter"):
        save_as_trainable_tokens(prepared(), tmp_path / "vanilla")
    base = ready(False)
    with pytest.raises(ValueError, match="carry LoRA"):
        save_as_trainable_tokens(get_peft_model(base, lora(target_modules=["lm_head"])), tmp_path / "vanilla")
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="mine"):
        save_as_trainable_tokens(peft_model(), tmp_path / "mine")
