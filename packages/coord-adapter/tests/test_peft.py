"""Under PEFT and swift: wrapping, switching, several adapters, configurations that are refused."""

import pytest
import torch
from offset_tiny import IDS, TEXT_LAYERS, batch, logits, lora, peft_model, prepared, ready, shake, tables_of, tiny
from peft import LoHaConfig, LoraConfig, get_model_status, get_peft_model
from peft.utils.hotswap import hotswap_adapter

from coord_adapter import (
    MODULE_NAME,
    bake_offsets,
    check_peft_config,
    install_coord_offset_adapter,
    with_offset_modules,
)
from coord_adapter.format import GUARD_NAME


def only_lora(model, dora=False):
    """The same base and LoRA weights with the offsets taken out of the way."""
    reference = get_peft_model(tiny(True), LoraConfig(r=4, target_modules=TEXT_LAYERS, use_dora=dora))
    weights = {key: value for key, value in model.state_dict().items() if "lora" in key}
    assert not reference.load_state_dict(weights, strict=False).unexpected_keys
    return reference.eval()


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_lora_and_offsets_add_up(dora):
    model = peft_model(use_dora=dora)
    reference = only_lora(model, dora)
    adapter = tables_of(model)
    with torch.no_grad():
        weight = reference.get_input_embeddings().weight
        weight[IDS] += adapter.embed_offset  # tied: moves embedding and head
    torch.testing.assert_close(logits(model), logits(reference), rtol=1e-4, atol=1e-4)


def test_fresh_adapter_keeps_logits_of_the_base_bitwise(combination):
    tied, tie_head = combination
    base = tiny(tied, torch.bfloat16)
    before = logits(base)
    install_coord_offset_adapter(base, IDS, tie_head=tie_head)
    assert torch.equal(logits(get_peft_model(base, lora()).eval()), before)


def test_disable_adapter_gives_logits_of_the_base_bitwise(combination):
    tied, tie_head = combination
    model = peft_model(tied, tie_head)
    active = logits(model)
    with model.disable_adapter():
        assert torch.equal(logits(model), logits(tiny(tied)))
    assert torch.equal(logits(model), active)
    assert not torch.equal(active, logits(tiny(tied)))


def test_disable_adapter_disables_offsets_trained_before_wrapping():
    bare = prepared()
    expected = logits(bare)
    model = get_peft_model(bare, lora()).eval()
    assert torch.equal(logits(model), expected)
    with model.disable_adapter():
        assert torch.equal(logits(model), logits(tiny()))


def test_training_reaches_lora_and_offsets_alone(combination):
    tied, tie_head = combination
    model = peft_model(tied, tie_head).train()
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    prefix = f"base_model.model.{MODULE_NAME}.modules_to_save.default"
    offsets = {f"{prefix}.embed_offset"} | (set() if tie_head else {f"{prefix}.head_offset"})
    assert {name for name in trained if "lora_" not in name} == offsets
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trained


def test_set_adapter_switches_between_id_sets(tmp_path):
    peft_model(ids=IDS[:10]).save_pretrained(tmp_path / "ten")
    model = peft_model(ids=IDS)
    first = logits(model)
    model.load_adapter(tmp_path / "ten", "ten")
    model.set_adapter("ten")
    assert tables_of(model).token_ids.tolist() == IDS[:10]
    assert torch.equal(logits(model), logits(peft_model(ids=IDS[:10])))
    model.set_adapter("default")
    assert torch.equal(logits(model), first)


def test_set_adapter_without_offsets_gives_the_base():
    model = peft_model()
    model.add_adapter("plain", LoraConfig(r=4, target_modules=TEXT_LAYERS))
    model.set_adapter("plain")
    assert torch.equal(logits(model), logits(tiny()))
    model.delete_adapter("plain")
    model.set_adapter("default")
    assert torch.equal(logits(model), logits(peft_model()))


def test_model_status_reports_the_adapter():
    model = peft_model()
    status = get_model_status(model)
    assert status.available_adapters == ["default"]
    assert status.enabled is True
    with model.disable_adapter():
        assert get_model_status(model).enabled is False
    assert get_model_status(model).enabled is True
    assert status.trainable_params == sum(p.numel() for p in peft_model().parameters() if p.requires_grad)


def test_swift_prepares_and_reloads_the_offsets(tmp_path):
    swift = pytest.importorskip("swift.tuners")
    base = ready(fingerprint="f00d")
    config = swift.LoraConfig(r=4, target_modules=TEXT_LAYERS, modules_to_save=[MODULE_NAME], task_type="CAUSAL_LM")
    model = shake(swift.Swift.prepare_model(base, config)).eval()
    expected = logits(model)
    model.save_pretrained(str(tmp_path))
    again = ready(fingerprint="f00d")
    assert torch.equal(logits(swift.Swift.from_pretrained(again, str(tmp_path)).eval()), expected)
    with pytest.raises(ValueError, match="coord_offset_guard"):
        swift.Swift.from_pretrained(tiny(), str(tmp_path))


@pytest.mark.parametrize("layer", ["embed_tokens", "lm_head"])
def test_config_refuses_dora_on_the_vocabulary(layer):
    with pytest.raises(ValueError, match=f"DoRA to .*{layer}"):
        lora(target_modules=["q_proj", layer], use_dora=True)
    base = ready(False)
    with pytest.raises(ValueError, match=f"DoRA to .*{layer}"):
        lora(target_modules=rf".*(q_proj|{layer})", use_dora=True)
    lora(target_modules=rf".*(q_proj|{layer})", use_dora=True, exclude_modules=[layer])
    config = LoraConfig(target_modules=["q_proj", layer], use_dora=True, modules_to_save=[MODULE_NAME])
    with pytest.raises(ValueError, match="DoRA on the"):
        get_peft_model(base, config)(**batch())


@pytest.mark.parametrize("layer", ["embed_tokens", "lm_head"])
@pytest.mark.parametrize("listed", ["modules_to_save", "trainable_token_indices"])
def test_config_refuses_rows_trained_twice(layer, listed):
    value = [layer] if listed == "modules_to_save" else {layer: [1, 2]}
    with pytest.raises(ValueError, match=listed):
        lora(**{listed: value})
    with pytest.raises(ValueError, match=r"a list, which means embed_tokens"):
        lora(trainable_token_indices=[1, 2])


def test_forward_refuses_trainable_tokens_under_the_hooks():
    base = ready()
    config = LoraConfig(
        target_modules=TEXT_LAYERS, modules_to_save=[MODULE_NAME], trainable_token_indices={"embed_tokens": [1]}
    )
    with pytest.raises(ValueError, match="trainable_token_indices"):
        get_peft_model(base, config)(**batch())


def test_config_accepts_what_works_with_offsets():
    for arguments in (
        {"target_modules": "all-linear", "use_dora": True},
        {"target_modules": ["q_proj", "o_proj"], "use_dora": True},
        {"target_modules": r".*(embed_tokens|q_proj)", "exclude_modules": ["embed_tokens"], "use_dora": True},
        {"target_modules": ["lm_head", "embed_tokens"]},
        {"target_modules": TEXT_LAYERS, "modules_to_save": ["merger"], "trainable_token_indices": None},
    ):
        check_peft_config(arguments)
        check_peft_config(LoraConfig(**arguments))


def test_config_refuses_the_switch_of_liger():
    with pytest.raises(ValueError, match="use_liger_kernel"):
        check_peft_config({}, use_liger_kernel=True)


def test_with_offset_modules_adds_itself_once_and_leaves_the_rest():
    given = {"r": 4, "target_modules": TEXT_LAYERS, "modules_to_save": ["merger"]}
    arguments = with_offset_modules(given)
    assert given["modules_to_save"] == ["merger"]
    assert arguments["modules_to_save"] == ["merger", MODULE_NAME]
    assert with_offset_modules(arguments) == arguments
    config = LoraConfig(**given)
    assert with_offset_modules(config).modules_to_save == ["merger", MODULE_NAME]
    assert with_offset_modules(config).trainable_token_indices == arguments["trainable_token_indices"]
    assert config.trainable_token_indices is None


def test_mixed_batches_of_adapters_are_refused_by_peft():
    model = peft_model()
    with pytest.raises(TypeError, match="Mixed batching"):
        model(**batch(), adapter_names=["default", "__base__"])


def test_guard_is_added_to_a_plain_configuration_by_the_first_forward(tmp_path):
    base = ready()
    config = LoraConfig(target_modules=TEXT_LAYERS, modules_to_save=[MODULE_NAME])
    model = shake(get_peft_model(base, config))
    logits(model)
    assert GUARD_NAME in model.peft_config["default"].trainable_token_indices
    assert not [name for name, _ in model.named_parameters() if "guard" in name]
    assert tables_of(model).embed_offset.requires_grad


def test_methods_that_cannot_name_the_guard_are_refused_when_configured_and_when_used():
    config = LoHaConfig(target_modules=TEXT_LAYERS, modules_to_save=[MODULE_NAME])
    with pytest.raises(ValueError, match="LoHaConfig has no trainable_token_indices"):
        with_offset_modules(config)
    base = ready()
    with pytest.raises(ValueError, match="LoHaConfig has no trainable_token_indices"):
        logits(get_peft_model(base, config))


def test_merge_of_another_adapter_than_the_active_one_is_refused_before_anything_is_merged(tmp_path):
    peft_model(ids=IDS[:10]).save_pretrained(tmp_path / "b")
    model = peft_model()
    model.load_adapter(tmp_path / "b", "b")
    before = logits(model)
    with pytest.raises(ValueError, match=r"keep the coordinate offsets of \['default'\].*set_adapter\('b'\)"):
        model.merge_and_unload(adapter_names=["b"])
    assert torch.equal(logits(model), before)
    model.set_adapter("b")
    expected = logits(model)
    merged = bake_offsets(model.merge_and_unload(adapter_names=["b"]))
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_adapter_that_is_left_after_another_is_deleted_merges(tmp_path):
    peft_model(ids=IDS[:10]).save_pretrained(tmp_path / "b")
    model = peft_model()
    model.load_adapter(tmp_path / "b", "b")
    model.set_adapter("b")
    expected = logits(model)
    model.set_adapter("default")
    logits(model)
    model.delete_adapter("default")
    assert get_model_status(model).active_adapters == get_model_status(model).available_adapters == ["b"]
    merged = bake_offsets(model.merge_and_unload(adapter_names=["b"]))
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("running", [True, False], ids=["to plain LoRA", "to offsets"])
def test_hotswap_adapter_of_peft_says_that_it_would_leave_offsets_behind(running, tmp_path):
    """PEFT alone keeps the old offsets in silence, or raises the KeyError of a set."""
    plain = shake(get_peft_model(prepared(), LoraConfig(r=4, target_modules=TEXT_LAYERS)))
    models = [peft_model(), plain.eval()]
    old, new = models if running else models[::-1]
    new.save_pretrained(tmp_path)
    before = logits(old)
    with pytest.raises(ValueError, match=r"swaps LoRA alone, and the .* has coordinate offsets: use model\.load"):
        hotswap_adapter(old, tmp_path, "default", torch_device="cpu")
    assert torch.equal(logits(old), before)


def test_hotswap_adapter_of_peft_swaps_lora_on_a_base_with_offsets(tmp_path):
    one, other = (
        shake(get_peft_model(prepared(), LoraConfig(r=4, target_modules=TEXT_LAYERS)), seed=k) for k in (3, 4)
    )
    other.save_pretrained(tmp_path)
    hotswap_adapter(one, tmp_path, "default", torch_device="cpu")
    assert torch.equal(logits(one.eval()), logits(other.eval()))


def test_indices_of_others_stay_beside_the_guard_and_names_match_whole_parts():
    given = {"trainable_token_indices": {"other": [3]}, "modules_to_save": ["head", "my_lm_head", "tokens"]}
    for made in (with_offset_modules(given), vars(with_offset_modules(LoraConfig(**given)))):
        assert made["trainable_token_indices"] == {"other": [3], GUARD_NAME: [0]}
        assert made["modules_to_save"] == [*given["modules_to_save"], MODULE_NAME]
    assert with_offset_modules({"modules_to_save": [MODULE_NAME, "x"]})["modules_to_save"] == ["x", MODULE_NAME]
    for name in ("model.language_model.embed_tokens", "language_model.embed_tokens", "embed_tokens", "lm_head"):
        with pytest.raises(ValueError, match="modules_to_save trains all of"):
            check_peft_config({"modules_to_save": [name]})


def test_guard_keeps_every_adapter_that_it_has_met(tmp_path):
    model = peft_model()
    guard = model.base_model.model._modules[GUARD_NAME]
    peft_model(ids=IDS[:10]).save_pretrained(tmp_path / "b")
    model.load_adapter(tmp_path / "b", "b")
    logits(model)
    guard.follow(["default"], {"default"})
    assert guard._get_available_adapters() == {"default", "b"} and guard.check_set_adapter(["x", "b"]) == "b"
    guard.delete_adapter("default", ["default", "b"])
    assert guard._get_available_adapters() == {"b"} and guard.active_adapters == ["b"]
