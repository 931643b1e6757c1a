"""Every known way to lose or spoil offsets without a word, and the word that is said instead."""

import pytest
import torch
from offset_tiny import (
    IDS,
    TEXT_LAYERS,
    H,
    V,
    batch,
    logits,
    lora,
    peft_model,
    prepared,
    shake,
    tables_of,
    tiny,
)
from peft import LoraConfig, get_base_model_state_dict, get_peft_model

from coord_adapter import (
    MODULE_NAME,
    bake_offsets,
    check_peft_config,
    install_coord_offset_adapter,
    reattach_coord_offset_hooks,
    with_offset_modules,
)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "empty"),
        ([1, 2, 1], r"repeat \[1\]"),
        ([-1], r"\[-1\] lie outside the 300 rows"),
        ([5, V], r"\[300\] lie outside"),
        (range(290, 310), r"\[300, 301, ... 309\] \(10 of them\)"),
    ],
)
def test_bad_ids(ids, message):
    model = tiny()
    with pytest.raises(ValueError, match=message):
        install_coord_offset_adapter(model, ids)
    assert not hasattr(model, MODULE_NAME)


def test_ids_come_as_any_iterable_of_integers():
    adapter = install_coord_offset_adapter(tiny(), torch.tensor([7, 3]))
    assert adapter.token_ids.tolist() == [7, 3]


def test_a_second_install_a_wrapped_model_and_a_headless_one():
    with pytest.raises(ValueError, match="already"):
        install_coord_offset_adapter(prepared(), IDS)
    with pytest.raises(ValueError, match="wrapped by PEFT"):
        install_coord_offset_adapter(get_peft_model(tiny(), LoraConfig(target_modules=TEXT_LAYERS)), IDS)
    with pytest.raises(ValueError, match="no input or no output embeddings"):
        install_coord_offset_adapter(tiny().model, IDS)


def test_an_embedding_that_scales_its_rows():
    class Scaled(torch.nn.Embedding):
        def forward(self, ids_BT):
            return 8 * super().forward(ids_BT)

    model = tiny()
    model.set_input_embeddings(Scaled(V, H))
    with pytest.raises(ValueError, match="Scaled, which does more"):
        install_coord_offset_adapter(model, IDS)


def test_an_unknown_dtype():
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        install_coord_offset_adapter(tiny(), IDS, dtype="int8")
    assert install_coord_offset_adapter(tiny(), IDS, dtype="bfloat16").embed_offset.dtype == torch.bfloat16


def test_forgotten_modules_to_save():
    base = tiny()
    install_coord_offset_adapter(base, IDS)
    model = get_peft_model(base, LoraConfig(target_modules=TEXT_LAYERS)).train()
    with pytest.raises(ValueError, match="modules_to_save"):
        model(**batch())
    assert torch.equal(logits(model.eval()), logits(tiny()))


@pytest.mark.parametrize("tie_head", [True, False])
def test_resizing_replaces_the_head_of_an_untied_base(tie_head):
    model = prepared(False, tie_head)
    expected = logits(model)
    model.resize_token_embeddings(V + 20)
    with pytest.raises(ValueError, match="output head was replaced after install_coord_offset_adapter"):
        model(**batch())
    assert reattach_coord_offset_hooks(model) == 1
    torch.testing.assert_close(logits(model)[..., :V], expected)
    assert not model.lm_head.weight.requires_grad


def test_resizing_keeps_the_layers_of_a_tied_base():
    model = prepared(True)
    expected = logits(model)
    model.resize_token_embeddings(V + 20)
    assert torch.equal(logits(model)[..., :V], expected)


def test_a_replaced_embedding():
    for model in (prepared(), peft_model()):
        model.set_input_embeddings(torch.nn.Embedding(V, H))
        with pytest.raises(ValueError, match="input embedding was replaced"):
            model(**batch())


def test_reattach_is_idempotent_and_changes_nothing():
    for model in (prepared(), peft_model()):
        expected = logits(model)
        assert reattach_coord_offset_hooks(model) == 0
        assert torch.equal(logits(model), expected)
    with pytest.raises(ValueError, match="install_coord_offset_adapter"):
        reattach_coord_offset_hooks(tiny())


def test_unfreezing_the_vocabulary_after_install():
    model = prepared()
    model.requires_grad_(True)
    with pytest.raises(ValueError, match="unfrozen"):
        model.train()(**batch())


@pytest.mark.parametrize("layer", ["embed_tokens", "lm_head"])
def test_dora_on_the_vocabulary(layer):
    with pytest.raises(ValueError, match=f"DoRA to .*{layer}"):
        lora(target_modules=["q_proj", layer], use_dora=True)
    base = tiny(False)
    install_coord_offset_adapter(base, IDS)
    config = LoraConfig(target_modules=["q_proj", layer], use_dora=True, modules_to_save=[MODULE_NAME])
    with pytest.raises(ValueError, match="DoRA on the"):
        get_peft_model(base, config)(**batch())


@pytest.mark.parametrize("layer", ["embed_tokens", "lm_head"])
@pytest.mark.parametrize("listed", ["modules_to_save", "trainable_token_indices"])
def test_training_the_same_rows_twice(layer, listed):
    value = [layer] if listed == "modules_to_save" else {layer: [1, 2]}
    with pytest.raises(ValueError, match=listed):
        lora(**{listed: value})


def test_trainable_tokens_under_the_hooks_are_told_at_the_first_forward():
    base = tiny()
    install_coord_offset_adapter(base, IDS)
    config = LoraConfig(
        target_modules=TEXT_LAYERS,
        modules_to_save=[MODULE_NAME],
        trainable_token_indices={"embed_tokens": [1]},
    )
    with pytest.raises(ValueError, match="trainable_token_indices"):
        get_peft_model(base, config)(**batch())


def test_configurations_that_are_fine():
    for arguments in (
        {"target_modules": "all-linear", "use_dora": True},
        {"target_modules": ["q_proj", "o_proj"], "use_dora": True},
        {"target_modules": r".*(embed_tokens|q_proj)", "exclude_modules": ["embed_tokens"], "use_dora": True},
        {"target_modules": ["lm_head", "embed_tokens"]},
        {"target_modules": TEXT_LAYERS, "modules_to_save": ["merger"], "trainable_token_indices": None},
    ):
        check_peft_config(arguments)
        check_peft_config(LoraConfig(**arguments))


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


def test_liger_is_refused_by_its_switch_and_by_its_forward():
    with pytest.raises(ValueError, match="use_liger_kernel"):
        check_peft_config({}, use_liger_kernel=True)
    model = prepared()

    def lce_forward(*args, **kwargs):
        return type(model).forward(model, *args, **kwargs)

    lce_forward.__module__ = "liger_kernel.transformers.model.qwen3_vl"
    model.forward = lce_forward
    with pytest.raises(ValueError, match="liger_kernel"):
        model(**batch())


def test_merge_and_unload_keeps_the_offsets_and_save_pretrained_refuses_to_lose_them(tmp_path):
    model = peft_model(tied=False)
    expected = logits(model)
    merged = model.merge_and_unload()
    torch.testing.assert_close(logits(merged), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="bake_offsets"):
        merged.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())
    bake_offsets(merged).save_pretrained(tmp_path)
    again = type(merged).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(again), expected, rtol=1e-4, atol=1e-4)


def test_the_base_under_peft_is_not_saved_with_offsets_either(tmp_path):
    model = peft_model(tied=False)
    base = model.get_base_model()
    with pytest.raises(ValueError, match="save_pretrained of the PeftModel"):
        base.save_pretrained(tmp_path)
    leaked = get_base_model_state_dict(model)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*coord_offset_adapter"):
        tiny(False).load_state_dict(leaked)
    clean = {name: tensor for name, tensor in leaked.items() if MODULE_NAME not in name}
    base.save_pretrained(tmp_path, state_dict=clean)
    assert torch.equal(logits(type(base).from_pretrained(tmp_path).eval()), logits(tiny(False)))


def test_a_copied_model_guards_its_own_saving(tmp_path):
    import copy

    twin = copy.deepcopy(prepared())
    with pytest.raises(ValueError, match="bake_offsets"):
        twin.save_pretrained(tmp_path)
    bake_offsets(twin).save_pretrained(tmp_path)


def test_mixed_batches_of_adapters_are_refused_by_peft():
    model = peft_model()
    with pytest.raises(TypeError, match="Mixed batching"):
        model(**batch(), adapter_names=["default", "__base__"])


def test_an_adapter_saved_by_plain_peft_code_is_guarded_after_its_first_forward(tmp_path):
    base = tiny()
    install_coord_offset_adapter(base, IDS)
    config = LoraConfig(target_modules=TEXT_LAYERS, modules_to_save=[MODULE_NAME])
    model = shake(get_peft_model(base, config))
    logits(model)
    assert "coord_offset_guard" in model.peft_config["default"].trainable_token_indices
    assert not [name for name, _ in model.named_parameters() if "guard" in name]
    assert tables_of(model).embed_offset.requires_grad
