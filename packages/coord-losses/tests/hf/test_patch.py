"""A patched model returns the objective's loss and gradients, and is otherwise as before."""

import copy
import inspect
import pickle
from functools import wraps
from types import MethodType

import pytest
import tiny_models
import torch
from torch import nn

from coord_losses import CoordObjective, ObjectiveConfig, supervised_rows
from coord_losses.hf import patch, unpatch
from coord_losses.hf.patch import _PROBE, LogitTransform, patch_state, probe

transformers = pytest.importorskip("transformers", reason="models to patch")
RELEASE = tuple(map(int, transformers.__version__.split(".")[:2]))

CHANGES = {
    "Gemma2": {"head_dim": 8, "final_logit_softcapping": 3.0},
    "Cohere": {"logit_scale": 0.25},
    "Granite": {"logits_scaling": 2.0},
    "HyperCLOVAX": {"logits_scaling": 2.0},
    "MuseGlimmer": {"output_multiplier": 0.25, "final_logit_softcapping": 3.0},
}
DENOMINATORS = {"tokens": 50, "coord_tokens": 40, "objects": 9}


@pytest.fixture
def fused_calls(monkeypatch):
    """The keywords of each call of the fused form."""
    calls, fused = [], CoordObjective.fused
    monkeypatch.setattr(CoordObjective, "fused", lambda *args, **kw: calls.append(kw) or fused(*args, **kw))
    return calls


def loss_and_gradients(model, fused=None, batch=None, denominators=None):
    """By the patched model, or from its logits (fused None)."""
    batch = batch or tiny_models.collator()(tiny_models.samples())
    if fused is None:
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        output = tiny_models.objective()(*supervised_rows(logits, batch["labels"]), batch["objects"])
        loss = output.total(denominators)
    else:
        outputs = patch(model, tiny_models.objective(), fused=fused)(**batch, denominators=denominators)
        assert outputs.logits is None
        loss = outputs.loss
    wanted = [p for p in model.parameters() if p.requires_grad]
    return loss, torch.autograd.grad(loss, wanted, allow_unused=True)


def assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for g, e in zip(found[1], expected[1], strict=True):
        assert (g is None) == (e is None)
        if g is not None:
            torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["Qwen2", "Llama", "GPTNeoX", "Phi", "Qwen3VL", "PaliGemma", "Chameleon", *CHANGES])
@pytest.mark.filterwarnings("ignore:Chameleon.* does more to its logits")
def test_patched_model_computes_the_objective(name, fused, fused_calls):
    if not hasattr(transformers, f"{name}Config"):
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    model = tiny_models.model(name, **CHANGES.get(name, {}))
    if name == "Phi":
        nn.init.normal_(model.lm_head.bias)
    expected = loss_and_gradients(model, denominators=DENOMINATORS)
    found = loss_and_gradients(model, fused, denominators=DENOMINATORS)
    assert_same(found, expected)
    # PaliGemma's text model announces a cap, which PaliGemma applies from 5.23 on: seen in its first forward pass.
    capped = RELEASE >= (5, 23)
    changed = {
        "Phi": {"bias_V": model.get_output_embeddings().bias},
        "Gemma2": {"softcap": 3.0},
        "Cohere": {"logit_scale": 0.25},
        "Granite": {"logit_scale": 0.5},
        "HyperCLOVAX": {"logit_scale": 2.0},
        "MuseGlimmer": {"logit_scale": 0.25, "softcap": 3.0},
    }
    if capped:
        changed["PaliGemma"] = {"softcap": 3.0}
    plain = {"denominators": DENOMINATORS, "bias_V": None, "logit_scale": 1.0, "softcap": None}
    asked = [{key: value for key, value in call.items() if key != "checks"} for call in fused_calls]
    # Chameleon writes the lowest number over the logits of the codebook's tokens, which no scale and cap can say.
    assert asked == ([plain | changed.get(name, {})] if fused and name != "Chameleon" else [])


class Doubled(nn.Linear):
    """A head of a class of its own, as those of quantised weights are."""

    def forward(self, hidden, *, times=2.0):
        return times * super().forward(hidden)


@pytest.mark.parametrize(
    "change",
    [
        "hook",
        "hook before it",
        "hook on its inputs",
        "own class",
        "lora on the head",
        "lora around the model",
        "saved head",
    ],
)
def test_heads_that_are_more_than_a_weight_give_logits_of_supervised_rows(change):
    model = tiny_models.model("Qwen2", tie_word_embeddings=False)
    if change == "hook":
        model.lm_head.register_forward_hook(lambda _, __, logits: logits * 0.5)
    elif change == "hook before it":
        model.lm_head.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 0.5, *inputs[1:]))
    elif change == "own class":
        model.lm_head.__class__ = Doubled
    elif change == "hook on its inputs":
        model.lm_head.register_forward_hook(lambda _, inputs, logits: logits + inputs[0].sum(-1, keepdim=True))
    else:
        peft = pytest.importorskip("peft", reason="LoRA")
        targets = ["q_proj", "lm_head"] if change == "lora on the head" else ["q_proj"]
        saved = ["lm_head"] if change == "saved head" else None
        model = peft.get_peft_model(
            model, peft.LoraConfig(target_modules=targets, modules_to_save=saved, init_lora_weights=False)
        )
    expected = loss_and_gradients(model)
    assert_same(loss_and_gradients(model, fused=True), expected)


def test_patched_model_without_labels_is_as_before():
    model = tiny_models.model("Qwen2").eval()
    ids = torch.tensor([[7, 8, 9]])
    logits, text = model(input_ids=ids).logits, model.generate(ids, max_new_tokens=5, do_sample=False)
    names = list(inspect.signature(model.forward).parameters)
    own_class = type(model)
    patch(model, tiny_models.objective())
    assert torch.equal(model(input_ids=ids).logits, logits)
    assert torch.equal(model.generate(ids, max_new_tokens=5, do_sample=False), text)
    assert type(model).__name__ == own_class.__name__ and isinstance(model, own_class)
    assert {*names, "objects", "denominators"} <= set(inspect.signature(model.forward).parameters)
    copied = copy.deepcopy(model)
    batch = tiny_models.collator()(tiny_models.samples(3))
    assert copied(**batch).loss == model(**batch).loss
    patch(model, CoordObjective(ObjectiveConfig(), tiny_models.VOCAB))  # the latest objective counts
    assert model(**batch).loss != copied(**batch).loss
    assert type(unpatch(model)) is own_class
    assert "forward" not in model.lm_head.__dict__


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3VLMoe"])
@pytest.mark.parametrize("how", ["configuration", "argument"])
def test_router_loss_of_a_mixture_is_added_where_it_is_asked_for(name, how):
    model = tiny_models.model(name)
    text = getattr(model.config, "text_config", model.config)
    text.router_aux_loss_coef = 0.5
    model.router_aux_loss_coef = 0.5
    batch = tiny_models.collator()(tiny_models.samples())
    patch(model, tiny_models.objective())
    plain = model(**batch).loss
    asked = {"output_router_logits": True}
    if how == "configuration":
        model.config.output_router_logits = text.output_router_logits = True
        asked = {}
        if name == "Qwen3VLMoe" and RELEASE < (5, 18):  # it reads its configuration from then on
            with pytest.raises(ValueError, match="returns no aux_loss"):
                model(**batch)
            return
    outputs = model(**batch, **asked)
    assert outputs.aux_loss > 0.1
    torch.testing.assert_close(outputs.loss, plain + 0.5 * outputs.aux_loss)
    # A micro-batch has the part of its tokens in the loss of the step.
    tokens = int((batch["labels"][:, 1:] != -100).sum())
    denominators = {"tokens": 4 * tokens, "coord_tokens": 40, "objects": 9}
    added = model(**batch, **asked, denominators=denominators).loss
    expected = 0.5 * outputs.aux_loss / 4
    if how == "argument":
        torch.testing.assert_close(added - model(**batch, denominators=denominators).loss, expected)
    text.router_aux_loss_coef = 0.0
    torch.testing.assert_close(model(**batch, **asked).loss, plain)
    text.router_aux_loss_coef = 0.5
    # Hugging Face's own forward pass adds the same.
    unpatch(model)
    given = {key: batch[key] for key in ("input_ids", "attention_mask", "labels")}
    own = model(**given, output_router_logits=True).loss - model(**given, output_router_logits=False).loss
    torch.testing.assert_close(own, 0.5 * outputs.aux_loss, rtol=1e-4, atol=1e-5)


def test_logged_router_loss_is_the_mean_over_tokens():
    model = patch(tiny_models.model("Mixtral"), tiny_models.objective()).train()
    batches = [tiny_models.collator()(tiny_models.samples()[part]) for part in (slice(2), slice(2, 8))]
    losses = [model(**batch, output_router_logits=True).aux_loss.item() for batch in batches]
    tokens = [int((batch["labels"][:, 1:] != -100).sum()) for batch in batches]
    expected = sum(loss * count for loss, count in zip(losses, tokens, strict=True)) / sum(tokens)
    logged = patch_state(model).flush()["router_aux_loss"]
    assert logged == pytest.approx(model.config.router_aux_loss_coef * expected, rel=1e-5)


def test_router_loss_that_a_model_does_not_return_is_refused():
    model = tiny_models.model("Qwen2")
    model.config.output_router_logits = True
    with pytest.raises(ValueError, match="returns no aux_loss"):
        patch(model, tiny_models.objective())(**tiny_models.collator()(tiny_models.samples(3)))


def test_patched_model_can_be_pickled():
    model = patch(tiny_models.model("Qwen2"), tiny_models.objective())
    batch = tiny_models.collator()(tiny_models.samples(3))
    restored = pickle.loads(pickle.dumps(model))
    assert type(restored) is type(model)
    assert restored(**batch).loss == model(**batch).loss
    assert type(unpatch(restored)) is type(tiny_models.model("Qwen2"))


def with_forward(name, after):
    """A model whose own class changes its logits, as no configuration says."""
    model = tiny_models.model(name)
    unaware = type(model).forward

    def forward(self, *args, **kwargs):
        outputs = unaware(self, *args, **kwargs)
        outputs["logits"] = after(outputs.logits)
        return outputs

    model.__class__ = type("LlamaForCausalLM", (type(model),), {"forward": forward})
    return model


def masked(logits):
    logits[..., [3, 57]] = torch.finfo(logits.dtype).min  # Chameleon's ids of image tokens
    return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("after", "found"),
    [
        (lambda x: x * 2, (2.0, None)),
        (lambda x: x.float() / 3, (1 / 3, None)),
        (lambda x: 5 * torch.tanh(x * 0.125 / 5), (0.125, 5.0)),
        (lambda x: -x, (-1.0, None)),
        (lambda x: x + 1, None),
        (lambda x: x.clamp(max=2.0), None),
        (masked, None),
    ],
)
def test_what_a_model_does_to_its_logits_is_measured(after, found, dtype):
    model, batch = with_forward("Llama", after).to(dtype), tiny_models.collator()(tiny_models.samples(3))
    patch(model, tiny_models.objective())
    if found is None:
        with pytest.warns(UserWarning, match="does more to its logits"):
            fused = model(**batch).loss
    else:
        fused = model(**batch).loss
        transform = model.__dict__["_coord_state"].after
        assert (transform.logit_scale, transform.softcap) == pytest.approx(found)
    readable = patch(model, tiny_models.objective(), fused=False)(**batch).loss
    exact = dtype is torch.float32
    torch.testing.assert_close(fused, readable, rtol=1e-5 if exact else 2e-2, atol=1e-6, check_dtype=False)


@pytest.mark.parametrize("fused", [True, False])
def test_a_pass_that_failed_or_was_told_of_leaves_no_trace(fused, recwarn):
    """As out of memory, from which a search for the size of a batch goes on."""
    model, batch = tiny_models.model("Llama"), tiny_models.collator()(tiny_models.samples(3))
    expected = patch(model, tiny_models.objective(), fused=fused)(**batch).loss
    for part, error in ((model.model.norm, MemoryError), (model.model, RuntimeError)):
        own = part.forward

        def fails(*_, error=error, **__):
            raise error("once")

        part.forward = fails
        with pytest.raises(error, match="once"):
            model(**batch)
        part.forward = own
        assert "forward" not in model.lm_head.__dict__ and not model.lm_head._forward_pre_hooks
        passes = patch_state(model).passes
        assert model(**batch).loss == expected and patch_state(model).passes == passes + 1
    assert not recwarn.list


def test_logits_that_need_the_readable_form_are_told_once():
    model, batch = with_forward("Llama", lambda x: x + 1), tiny_models.collator()(tiny_models.samples(3))
    patch(model, tiny_models.objective())
    with pytest.warns(UserWarning, match="does more to its logits") as told:
        losses = [model(**batch).loss for _ in range(3)]
    assert len(told) == 1 and losses[0] == losses[1] == losses[2]
    assert not patch_state(model).fused


@pytest.mark.parametrize("size", [1, 2, 9, 10, 11, 25])
def test_transformations_of_the_probe_are_measured_or_refused(size):
    before = probe(nn.Linear(2, size))
    assert before.shape == (1, 1, max(10, size)) and set(before.flatten().tolist()) == set(_PROBE)
    known = {
        (1.0, None): lambda x: x, (-0.5, None): lambda x: x * -0.5, (4.0, None): lambda x: (4 * x).float(),
        (1.0, 30.0): lambda x: 30 * torch.tanh(x / 30), (2.0, 7.0): lambda x: 7 * torch.tanh(2 * x / 7),
        (0.5, 0.25): lambda x: 0.25 * torch.tanh(0.5 * x / 0.25),
    }  # fmt: skip
    for wanted, after in known.items():
        found = LogitTransform.measure(before, after(before))
        assert (found.logit_scale, found.softcap) == wanted
    for after in (
        torch.sign, lambda x: x.clamp(max=1e-5), lambda x: x.clamp(-50, 50), lambda x: x + 1e-3, torch.relu,
        lambda x: 0 * x + 1, lambda x: x[..., :-1], lambda x: x[0], lambda x: x.half(), lambda x: x.bfloat16(),
        lambda x: x.masked_fill(x == 40, -torch.inf), lambda x: torch.where(x == -0.25, 0.0, x), torch.exp,
    ):  # fmt: skip
        assert LogitTransform.measure(before, after(before)) is None


def liger(self, input_ids=None, labels=None, **kwargs):
    """Multiplies by the weight where labels are given, as Liger's forward passes do."""
    if labels is None:
        return type(self).__mro__[1].forward(self, input_ids=input_ids, **kwargs)
    return self.model(input_ids=input_ids).last_hidden_state @ self.lm_head.weight.T


def body_alone(self, input_ids=None, labels=None, **kwargs):
    return {"loss": (self.model(input_ids=input_ids)[0] @ self.lm_head.weight.T)[labels != -100].sum()}


def needs_labels(self, input_ids=None, labels=None, **kwargs):
    return labels[:, 1:]


def hooked(model):
    hooks = pytest.importorskip("accelerate.hooks", reason="accelerate's hooks on a forward pass")
    hooks.add_hook_to_module(model, hooks.ModelHook())
    assert "forward" in model.__dict__


def offloaded(model):
    accelerate = pytest.importorskip("accelerate", reason="its device map")
    places = {"model.embed_tokens": "cpu", "model.layers": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu"}
    accelerate.dispatch_model(model, places | {"lm_head": "cpu"}, main_device="cpu", force_hooks=True)
    assert "forward" in model.__dict__ and "forward" in model.lm_head.__dict__


def monkey(model):
    own = model.forward

    def forward(*args, **kwargs):
        return own(*args, **kwargs)

    model.forward = forward


def of_its_class(model):
    own = type(model).forward

    def forward(self, *args, **kwargs):
        return own(self, *args, **kwargs)

    type(model).forward = forward


REPLACED = [hooked, offloaded, monkey, of_its_class, lambda model: setattr(model, "forward", MethodType(liger, model))]


@pytest.mark.parametrize("replace", REPLACED)
@pytest.mark.parametrize("when", ["before", "after", "both", "inside peft"])
def test_objective_is_computed_around_a_forward_pass_of_others(replace, when, monkeypatch):
    own = transformers.Qwen2ForCausalLM.forward
    monkeypatch.setattr(transformers.Qwen2ForCausalLM, "forward", own)  # is as it was after the test
    model, batch = tiny_models.model("Qwen2", tie_word_embeddings=False), tiny_models.collator()(tiny_models.samples())
    expected = patch(model, tiny_models.objective())(**batch, denominators=DENOMINATORS).loss
    unpatch(model)
    if when in ("before", "both"):
        replace(model)
    outer = patch(model, tiny_models.objective())
    if when == "inside peft":
        peft = pytest.importorskip("peft", reason="LoRA")
        outer = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
    if when != "before":
        replace(model)
    for _ in range(2):
        torch.testing.assert_close(outer(**batch, denominators=DENOMINATORS).loss, expected, rtol=1e-5, atol=1e-6)
    assert {"objects", "denominators"} <= set(inspect.signature(model.forward).parameters)
    assert outer(input_ids=batch["input_ids"]).logits.shape[-1] == 60


@pytest.mark.parametrize("forward", [body_alone, needs_labels])
def test_forward_pass_that_goes_round_the_head_is_named(forward):
    model = patch(tiny_models.model("Qwen2"), tiny_models.objective())
    batch = tiny_models.collator()(tiny_models.samples(3))
    name = forward.__name__
    model.forward = MethodType(wraps(type(model).forward)(forward), model)
    with pytest.raises(ValueError, match=f"test_patch.{name} .*without calling the output embeddings"):
        model(**batch)
    del model.forward
    assert model(**batch).loss.requires_grad


def test_encoder_decoders_and_models_without_a_head_are_refused():
    sizes = {"vocab_size": 60, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))
    with pytest.raises(ValueError, match=r"T5ForConditionalGeneration is an encoder-decoder.*decoder-only"):
        patch(t5, tiny_models.objective())
    with pytest.raises(ValueError, match="no output embeddings"):
        patch(tiny_models.model("Qwen2").model, tiny_models.objective())
    with pytest.raises(ValueError, match="no output embeddings"):
        patch(nn.Linear(2, 2), tiny_models.objective())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("fused", [True, False])
def test_plain_cross_entropy_is_that_of_torch_with_its_smoothing(smoothing, fused):
    model, batch = tiny_models.model("Qwen2"), tiny_models.collator()(tiny_models.samples())
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    targets = batch["labels"][:, 1:]
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=smoothing)
    config = ObjectiveConfig.group_a(label_smoothing=smoothing)
    found = patch(model, tiny_models.objective(config), fused=fused)(**batch).loss
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_denominators_that_are_given_precede_the_count_of_a_trainer():
    model, batch = (
        patch(tiny_models.model("Qwen2"), tiny_models.objective()),
        tiny_models.collator()(tiny_models.samples()),
    )
    expected = model(**batch, denominators=DENOMINATORS).loss
    assert model(**batch, denominators=DENOMINATORS, num_items_in_batch=7).loss == expected
    patch(model, tiny_models.objective(ObjectiveConfig.group_a()))
    torch.testing.assert_close(
        model(**batch, num_items_in_batch=50).loss, model(**batch, denominators={"tokens": 50}).loss
    )


def test_passes_of_an_evaluation_are_no_part_of_the_training_log():
    model, batch = (
        patch(tiny_models.model("Qwen2"), tiny_models.objective()),
        tiny_models.collator()(tiny_models.samples()),
    )
    model.train()(**batch)
    expected = patch_state(model).flush()
    model(**batch)
    model.eval()(**tiny_models.collator()(tiny_models.samples()[:3]))
    assert patch_state(model).flush() == pytest.approx(expected) and expected
    model(**batch)
    assert patch_state(model).flush() == {}
