"""What is in the file, and every way back from it."""

import json
import warnings

import pytest
import torch
from offset_tiny import IDS, H, batch, logits, peft_model, shake, tables_of, tiny
from peft import AutoPeftModel, PeftModel
from safetensors.torch import load_file, save_file

from coord_adapter import MODULE_NAME, install_coord_offset_adapter, load_adapter, read_offsets

WEIGHTS = "adapter_model.safetensors"
GUARD_ERROR = "coord_offset_guard"


@pytest.fixture
def saved(tmp_path, combination):
    """(folder, logits of the trained model, base's tie mode) of an adapter of each combination."""
    tied, tie_head = combination
    model = peft_model(tied, tie_head, fingerprint="f00d")
    expected = logits(model)
    model.save_pretrained(tmp_path)
    return tmp_path, expected, tied


@pytest.fixture
def folder(tmp_path):
    model = peft_model()
    logits(model)
    model.save_pretrained(tmp_path)
    return tmp_path


def ready(tied=True, ids=IDS, **kwargs):
    base = tiny(tied)
    install_coord_offset_adapter(base, ids, **kwargs)
    return base


def rewrite(folder, change):
    """Write the file again as other code might have written it."""
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def key(name):
    return f"base_model.model.{MODULE_NAME}.{name}"


def test_the_file_holds_ids_tables_and_fingerprint_and_no_vocabulary(saved):
    folder, *_ = saved
    tensors = load_file(folder / WEIGHTS)
    ours = {name.rpartition(".")[2] for name in tensors if MODULE_NAME in name}
    assert ours == {"token_ids", "embed_offset", "head_offset", "fingerprint", "format_version"}
    assert tensors[key("token_ids")].tolist() == IDS
    assert bytes(tensors[key("fingerprint")].tolist()) == b"f00d"
    assert all("lora_" in name or MODULE_NAME in name for name in tensors)


def test_load_adapter_restores_the_logits_bit_for_bit(saved):
    folder, expected, tied = saved
    assert torch.equal(logits(load_adapter(tiny(tied), folder)), expected)
    assert torch.equal(logits(load_adapter(ready(tied), folder)), expected)


@pytest.mark.parametrize("low_cpu_mem_usage", [False, True])
def test_peft_restores_it_on_a_prepared_base(saved, low_cpu_mem_usage):
    folder, expected, tied = saved
    model = PeftModel.from_pretrained(ready(tied), folder, low_cpu_mem_usage=low_cpu_mem_usage)
    assert torch.equal(logits(model), expected)


@pytest.mark.parametrize("tie_head", [True, False])
def test_sizes_and_tie_mode_come_from_the_file(saved, tie_head):
    folder, expected, tied = saved
    model = PeftModel.from_pretrained(ready(tied, ids=[3, 1, 2], tie_head=tie_head), folder)
    assert torch.equal(logits(model), expected)


def test_transformers_own_load_adapter_restores_it_on_an_equal_base(saved):
    folder, expected, tied = saved
    tie_head = read_offsets(folder).tied
    base = ready(tied, tie_head=tie_head, fingerprint="f00d")
    base.load_adapter(folder)
    torch.testing.assert_close(logits(base.eval()), expected)


def test_a_loaded_adapter_trains_on(saved):
    folder, _, tied = saved
    model = load_adapter(tiny(tied), folder, is_trainable=True).train()
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    tables = dict(tables_of(model).named_parameters())
    assert all(table.grad.abs().sum() > 0 for table in tables.values())
    assert len(tables) == (1 if read_offsets(folder).tied else 2)


def test_saving_again_writes_the_same_file(saved, tmp_path):
    folder, _, tied = saved
    load_adapter(tiny(tied), folder).save_pretrained(tmp_path / "again")
    first, second = load_file(folder / WEIGHTS), load_file(tmp_path / "again" / WEIGHTS)
    assert set(first) == set(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_read_offsets_needs_no_model(saved):
    folder, *_ = saved
    offsets = read_offsets(folder)
    assert offsets.ids.tolist() == IDS
    assert offsets.embed.shape == (len(IDS), H)
    assert offsets.tied is (offsets.head is None)
    assert offsets.fingerprint == "f00d"
    assert read_offsets(folder / WEIGHTS).ids.tolist() == IDS


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
    with pytest.raises(ValueError, match=GUARD_ERROR):
        load[how]()


def test_another_vocabulary_is_an_error_that_names_both_sides(folder):
    for load in (
        lambda: load_adapter(tiny(), folder, fingerprint="beef"),
        lambda: load_adapter(ready(fingerprint="beef"), folder),
        lambda: PeftModel.from_pretrained(ready(fingerprint="beef"), folder),
    ):
        with pytest.raises((ValueError, RuntimeError), match=r"(?s)f00d.*beef"):
            load()


def test_a_refused_load_leaves_the_base_as_it_was(folder):
    base = tiny()
    with pytest.raises(ValueError, match="fingerprint"):
        load_adapter(base, folder, fingerprint="beef")
    assert set(base.state_dict()) == set(tiny().state_dict())


def test_an_adapter_without_a_fingerprint_loads_with_a_warning(tmp_path):
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


def test_a_fingerprint_that_agrees_is_not_worth_a_warning(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Could not find a config file")
        load_adapter(ready(fingerprint="f00d"), folder, fingerprint="f00d")


def test_a_file_of_another_writer_with_nothing_but_tables_loads(folder):
    expected = logits(load_adapter(tiny(), folder))
    rewrite(folder, lambda tensors: [tensors.pop(key(name)) for name in ("fingerprint", "format_version")])
    for base in (tiny(), ready(fingerprint="f00d")):
        with pytest.warns(UserWarning, match="no vocabulary fingerprint"):
            model = load_adapter(base, folder)
        assert torch.equal(logits(model), expected)
        assert f"base_model.model.{MODULE_NAME}.modules_to_save.default.fingerprint" in model.state_dict()


def set_tensor(name, value):
    return lambda tensors: tensors.__setitem__(key(name), value(tensors[key(name)]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_tensor("embed_offset", lambda t: t[:0].clone()), "ZeRO-3"),
        (set_tensor("embed_offset", lambda t: t[:, :7].clone()), r"\(43, 7\), expected \(43, 64\)"),
        (set_tensor("head_offset", lambda t: torch.ones(5, H)), "head_offset"),
        (set_tensor("token_ids", lambda t: t + 100), "lies outside the 300 rows"),
        (set_tensor("format_version", lambda t: t + 9), "update coord-adapter"),
    ],
    ids=["zero rows", "hidden size", "head rows", "vocabulary", "version"],
)
@pytest.mark.parametrize("load", [load_adapter, PeftModel.from_pretrained], ids=["ours", "peft"])
def test_a_file_that_does_not_fit_is_refused(folder, change, message, load):
    rewrite(folder, change)
    with pytest.raises((ValueError, RuntimeError), match=message):
        load(ready(fingerprint="f00d"), folder)


def test_ignore_mismatched_sizes_cannot_drop_the_tables(folder):
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        PeftModel.from_pretrained(ready(ids=IDS[:10]), folder, ignore_mismatched_sizes=True)


def test_a_folder_without_offsets_is_named(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_adapter(tiny(), tmp_path / "nowhere")
    rewrite(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if MODULE_NAME in name])
    with pytest.raises(ValueError, match="no coordinate offsets"):
        load_adapter(tiny(), folder)
    (folder / WEIGHTS).write_bytes(b"not safetensors")
    with pytest.raises(ValueError, match="not a readable safetensors"):
        load_adapter(tiny(), folder)


def test_a_wrapped_base_is_told_what_to_call(folder):
    with pytest.raises(ValueError, match=r"load_adapter\(path, adapter_name\)"):
        load_adapter(peft_model(), folder)


def test_a_checkpoint_of_the_trained_parameters_alone_goes_on(combination):
    """As DeepSpeed saves a PEFT model: every buffer, and of the parameters those that learn."""
    trained = shake(peft_model(*combination))
    frozen = {name for name, parameter in trained.named_parameters() if not parameter.requires_grad}
    saved = {name: value for name, value in trained.state_dict().items() if name not in frozen}
    again = peft_model(*combination)
    again.load_state_dict(saved, strict=False)
    assert torch.equal(logits(again), logits(trained))
    with again.disable_adapter(), trained.disable_adapter():
        assert torch.equal(logits(again), logits(trained))
    table = f"base_model.model.{MODULE_NAME}.modules_to_save.default.embed_offset"
    del saved[table]
    with pytest.raises(RuntimeError, match=r"embed_offset.*missing"):
        again.load_state_dict(saved, strict=False)


def test_offsets_of_a_bare_model_survive_a_plain_state_dict():
    trained = shake(ready(tie_head=False))
    again = ready(ids=[1, 2])
    again.load_state_dict(trained.state_dict())
    assert torch.equal(logits(again), logits(trained))
