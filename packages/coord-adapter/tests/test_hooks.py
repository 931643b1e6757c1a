"""Where the hooks sit, what they refuse, and a head that is replaced for one call (a fused objective)."""

import copy
import pickle
from functools import partial, wraps
from types import MethodType

import pytest
import torch
from offset_tiny import (
    IDS,
    TEXT_LAYERS,
    H,
    V,
    batch,
    fused_head,
    logits,
    lora,
    peft_model,
    prepared,
    ready,
    shake,
    tables_of,
    tiny,
)
from peft import LoraConfig, get_peft_model
from torch.nn.functional import cross_entropy

from coord_adapter import MODULE_NAME, active_offsets, bake_offsets, bypass_head_hook, reattach_coord_offset_hooks


@pytest.mark.parametrize("build", [prepared, peft_model], ids=["bare", "peft"])
def test_fused_loss_and_gradients_equal_the_plain_head(combination, build):
    rows_BT = torch.zeros(2, 24, dtype=torch.bool)
    rows_BT[0, 3:20:2] = rows_BT[1, 5:] = True
    targets_N = torch.arange(int(rows_BT.sum())) * 7 % 300
    plain, fused = build(*combination), build(*combination)
    expected = cross_entropy(plain(**batch()).logits[rows_BT], targets_N, reduction="sum")
    expected.backward()
    sum_of_losses = partial(cross_entropy, target=targets_N, reduction="sum")
    with fused_head(fused, lambda hidden_BTH: hidden_BTH[rows_BT], sum_of_losses):
        loss = fused(**batch()).logits[0]
        loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    for (name, mine), (_, theirs) in zip(fused.named_parameters(), plain.named_parameters(), strict=True):
        if mine.requires_grad:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4, msg=name)
    assert torch.equal(logits(fused), logits(plain))


def test_bypass_ends_with_its_context_even_after_an_error():
    model = prepared()
    expected = logits(model)
    with pytest.raises(RuntimeError, match="inside"), bypass_head_hook(model), bypass_head_hook(model):
        raise RuntimeError("inside")
    assert torch.equal(logits(model), expected)
    with bypass_head_hook(model):
        with bypass_head_hook(model):
            bypassed = logits(model)
        assert torch.equal(logits(model), bypassed)
        assert not torch.equal(bypassed, expected)


def test_active_offsets_are_those_of_the_head():
    untied = prepared(tie_head=False)
    found = active_offsets(untied)
    assert found.ids.tolist() == IDS
    assert torch.equal(found.offsets, tables_of(untied).head_offset)
    assert found.head_weight is untied.lm_head.weight
    tied = peft_model()
    assert torch.equal(active_offsets(tied).offsets, tables_of(tied).embed_offset)
    assert active_offsets(torch.nn.DataParallel(tied)).ids.tolist() == IDS


def test_active_offsets_are_none_where_nothing_is_added():
    model = peft_model()
    with model.disable_adapter():
        assert active_offsets(model) is None
    assert active_offsets(tiny()) is None
    with bypass_head_hook(tiny()):
        pass


def test_active_offsets_refuse_a_head_with_lora():
    model = shake(get_peft_model(ready(False), lora(target_modules=["lm_head"])))
    with pytest.raises(ValueError, match="lm_head out of target_modules"):
        active_offsets(model)


@pytest.mark.parametrize("tie_head", [True, False])
def test_check_refuses_a_head_replaced_by_resizing_until_reattached(tie_head):
    model = prepared(False, tie_head)
    expected = logits(model)
    model.resize_token_embeddings(V + 20)
    with pytest.raises(ValueError, match="output head was replaced after install_coord_offset_adapter"):
        model(**batch())
    assert reattach_coord_offset_hooks(model) == 1
    torch.testing.assert_close(logits(model)[..., :V], expected)
    assert not model.lm_head.weight.requires_grad


def test_reattach_refuses_a_vocabulary_cut_below_the_ids():
    model = prepared()
    model.resize_token_embeddings(max(tables_of(model).token_ids.tolist()))
    with pytest.raises(ValueError, match="lie outside"):
        reattach_coord_offset_hooks(model)


def test_check_accepts_resizing_of_a_tied_base():
    model = prepared(True)
    expected = logits(model)
    model.resize_token_embeddings(V + 20)
    assert torch.equal(logits(model)[..., :V], expected)


def test_check_refuses_a_replaced_embedding():
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


def test_check_refuses_an_unfrozen_vocabulary():
    model = prepared()
    model.requires_grad_(True)
    with pytest.raises(ValueError, match="unfrozen"):
        model.train()(**batch())


def test_check_refuses_forgotten_modules_to_save():
    model = get_peft_model(ready(), LoraConfig(target_modules=TEXT_LAYERS)).train()
    with pytest.raises(ValueError, match="modules_to_save"):
        model(**batch())
    assert torch.equal(logits(model.eval()), logits(tiny()))


def test_check_refuses_forward_of_liger():
    model = prepared()

    def lce_forward(*args, **kwargs):
        return type(model).forward(model, *args, **kwargs)

    lce_forward.__module__ = "liger_kernel.transformers.model.qwen3_vl"
    model.forward = lce_forward
    with pytest.raises(ValueError, match="liger_kernel"):
        model(**batch())


def replaced(model, loss_of):
    """Give the model a forward as others do: it runs the body, and computes the loss from what it reads of the head."""
    owner = model.get_base_model() if hasattr(model, "get_base_model") else model

    @wraps(type(owner).forward)
    def forward(self, *args, labels=None, **kwargs):
        return loss_of(self, self.model(*args, **kwargs).last_hidden_state[:, :-1].flatten(0, 1))

    owner.forward = MethodType(forward, owner)
    return owner


def targets():
    return batch()["input_ids"][:, 1:].flatten()


@pytest.mark.slow
@pytest.mark.parametrize("build", [prepared, peft_model], ids=["bare", "peft"])
def test_losses_that_multiply_by_the_weight_get_moved_rows(combination, build):
    live, model = build(*combination).train(), build(*combination).train()
    expected = cross_entropy(live(**batch()).logits[:, :-1].flatten(0, 1), targets())
    expected.backward()
    read = []

    def loss_of(owner, hidden_NH):
        head = owner.get_output_embeddings()
        assert head.weight is owner.get_output_embeddings().weight and head.bias is None
        read.append(head)
        return cross_entropy(hidden_NH @ head.weight.T, targets())

    owner = replaced(model, loss_of)
    loss = model(**batch())
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    for (name, mine), (_, theirs) in zip(model.named_parameters(), live.named_parameters(), strict=True):
        if mine.requires_grad:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5, msg=name)
    assert owner.get_output_embeddings() is owner.lm_head  # outside of a pass
    with torch.no_grad():
        for _ in range(2):  # the rows of a pass are those of now
            shake(live), shake(model)
            expected = cross_entropy(live(**batch()).logits[:, :-1].flatten(0, 1), targets())
            torch.testing.assert_close(model(**batch()), expected, rtol=1e-5, atol=1e-5)
    del read[:]
    assert owner.get_output_embeddings() is owner.lm_head
    if build is peft_model:
        with model.disable_adapter(), torch.no_grad():
            model(**batch())
        assert read.pop() is owner.lm_head
    pickle.loads(pickle.dumps(owner.get_output_embeddings()))


def from_weight(owner, hidden_NH):
    return cross_entropy(hidden_NH @ owner.lm_head.weight.T, targets())


def beside_logits(owner, hidden_NH):
    owner.lm_head(hidden_NH)  # for a metric, say
    return from_weight(owner, hidden_NH)


@pytest.mark.parametrize("loss_of", [from_weight, beside_logits])
@pytest.mark.parametrize("build", [prepared, peft_model], ids=["bare", "peft"])
def test_training_stops_at_a_loss_that_does_not_come_from_the_head(build, loss_of):
    model = build(tie_head=False).train()
    owner = replaced(model, loss_of)
    with pytest.raises(ValueError, match=r"test_hooks\.forward computed the loss.*CoordTrainer.*bypass_head_hook"):
        model(**batch()).backward()
    with bypass_head_hook(model):
        model(**batch()).backward()
    del owner.forward
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    hidden = owner.model(**batch()).last_hidden_state
    with pytest.raises(ValueError, match=r"test_training_stops_at_a_loss.* computed the loss"):
        hidden.sum().backward()
    with torch.no_grad():  # nothing is trained
        owner.model(**batch())


def test_training_goes_on_where_the_body_runs_twice_or_again_in_the_backward_pass():
    model = prepared(tie_head=False).train()
    parts = [model.model(**batch(seed)).last_hidden_state for seed in (1, 2)]
    model.lm_head(torch.cat(parts)).logsumexp(-1).sum().backward()
    expected = model.coord_offset_adapter.head_offset.grad.clone()
    for reentrant in (True, False):
        model.zero_grad()
        embeds = model.get_input_embeddings()(torch.cat([batch(seed)["input_ids"] for seed in (1, 2)]))

        def body(embeds):
            return model.model(inputs_embeds=embeds).last_hidden_state

        hidden = torch.utils.checkpoint.checkpoint(body, embeds, use_reentrant=reentrant)
        model.lm_head(hidden).logsumexp(-1).sum().backward()
        torch.testing.assert_close(model.coord_offset_adapter.head_offset.grad, expected, rtol=1e-4, atol=1e-4)
    hidden = model.model(**batch()).last_hidden_state
    with bypass_head_hook(model):  # others add the offsets to these logits
        model.lm_head(hidden).sum().backward()


@pytest.mark.slow
def test_save_pretrained_refuses_the_base_under_peft(tmp_path):
    model = peft_model(tied=False)
    base = model.get_base_model()
    with pytest.raises(ValueError, match="save_pretrained of the PeftModel"):
        base.save_pretrained(tmp_path)
    leaked = pytest.importorskip("peft", minversion="0.20").get_base_model_state_dict(model)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*coord_offset_adapter"):
        tiny(False).load_state_dict(leaked)
    clean = {name: tensor for name, tensor in leaked.items() if MODULE_NAME not in name}
    base.save_pretrained(tmp_path, state_dict=clean)
    assert torch.equal(logits(type(base).from_pretrained(tmp_path).eval()), logits(tiny(False)))


def test_save_pretrained_refuses_a_copied_model_until_baked(tmp_path):
    twin = copy.deepcopy(prepared())
    with pytest.raises(ValueError, match="bake_offsets"):
        twin.save_pretrained(tmp_path)
    bake_offsets(twin).save_pretrained(tmp_path)


@pytest.mark.slow
def test_deepcopy_uses_its_own_tables():
    for model in (prepared(), peft_model()):
        twin = copy.deepcopy(model)
        before = logits(model)
        with torch.no_grad():
            tables_of(twin).embed_offset.mul_(-3)
        assert torch.equal(logits(model), before)
        assert not torch.equal(logits(twin), before)
        with torch.no_grad():
            tables_of(model).embed_offset.zero_()
        assert not torch.equal(logits(twin), logits(model))


def test_a_copy_proves_its_own_head():
    model = prepared(tie_head=False).train()
    twin = copy.deepcopy(model)
    replaced(twin, from_weight)
    loss = twin(**batch())
    model(**batch()).logits.sum().backward()  # the first model's head has no part in the loss of the copy
    with pytest.raises(ValueError, match="computed the loss"):
        loss.backward()


@pytest.mark.slow
def test_pickle_keeps_the_hooks():
    for model in (prepared(), peft_model()):
        twin = pickle.loads(pickle.dumps(model))
        before = logits(model)
        assert torch.equal(logits(twin), before)
        with torch.no_grad():
            tables_of(model).embed_offset.zero_()
        assert torch.equal(logits(twin), before)


def test_vocabulary_is_looked_at_where_it_would_be_trained():
    model = prepared()
    model.requires_grad_(True)
    with torch.no_grad():
        model.train()(**batch())
    model.eval()(**batch())
    model.lm_head.weight.requires_grad_(False)
    model.get_input_embeddings().weight.requires_grad_(False)
    model.train()(**batch())
    untied = prepared(False, False).train()
    untied.lm_head.weight.requires_grad_(True)
    with pytest.raises(ValueError, match="the output head was unfrozen"):
        untied(**batch())


def test_hidden_states_of_a_tuple_are_watched_and_the_caller_is_named_beyond_packages_below():
    """Of a package whose name only begins as one of theirs the functions are the user's."""
    space = {"__name__": "peft_tools.train"}
    exec("def run(model, inputs): return model(**inputs, return_dict=False)[0]", space)
    model = prepared(tie_head=False).train()
    hidden = space["run"](model.model, batch())
    with pytest.raises(ValueError, match=r"^peft_tools\.train\.run computed the loss"):
        hidden.sum().backward()
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    hidden = space["run"](model.model, batch())  # what came before is no part of this one
    with pytest.raises(ValueError, match="computed the loss"):
        hidden.sum().backward()


def test_head_with_lora_is_not_lent_and_offsets_are_saved_by_nobody(tmp_path):
    model = shake(get_peft_model(ready(False), lora(target_modules=["lm_head"]))).train()
    read = []

    def loss_of(owner, hidden_NH):
        read.append(owner.get_output_embeddings())
        return cross_entropy(owner.lm_head(hidden_NH), targets())

    owner = replaced(model, loss_of)
    model(**batch()).backward()
    assert read == [owner.lm_head]
    bare = prepared()
    with pytest.raises(ValueError, match="lose the offsets"):
        bare.save_pretrained(tmp_path, state_dict=bare.state_dict())
    assert not [*tmp_path.iterdir()]
