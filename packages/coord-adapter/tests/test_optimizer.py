"""The optimizer registry."""

import warnings

import pytest
import torch
from offset_tiny import batch, peft_model, tables_of, tiny

from coord_adapter import (
    CoordOffsetConfig,
    build_param_groups,
    offset_parameters,
    param_group_names,
    register_param_groups,
)
from coord_codec.registry import Registry

APART = "multimodal_coord_offset"


def multimodal(model, lr=1e-4, weight_decay=0.1):
    """Groups as swift makes them: here a vision one and an LLM one, the offsets in the latter."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    vision = [p for name, p in named if ".visual." in name]
    language = [p for name, p in named if ".visual." not in name]
    return [
        {"params": vision, "lr": lr / 10, "weight_decay": weight_decay},
        {"params": language, "lr": lr, "weight_decay": weight_decay, "betas": (0.9, 0.95)},
    ]


def both(tie_head=True):
    model = peft_model(tie_head=tie_head, target_modules=r".*(language_model|visual).*\.(q_proj|qkv)")
    return model, multimodal(model)


def test_multimodal_returns_groups_unchanged():
    model, groups = both()
    assert build_param_groups("multimodal", model, groups, CoordOffsetConfig()) is groups


def test_groups_of_two_tables_have_their_own_rates():
    model, groups = both(tie_head=False)
    config = CoordOffsetConfig(tie_head=False, embed_lr=1e-3, head_lr=2e-3, weight_decay=0.01)
    *kept, embed, head = build_param_groups(APART, model, groups, config)
    adapter = tables_of(model)
    assert embed["params"] == [adapter.embed_offset]
    assert head["params"] == [adapter.head_offset]
    assert (embed["lr"], head["lr"]) == (1e-3, 2e-3)
    assert embed["weight_decay"] == head["weight_decay"] == 0.01
    assert embed["betas"] == (0.9, 0.95)
    assert [(g["lr"], g["weight_decay"]) for g in kept] == [(1e-5, 0.1), (1e-4, 0.1)]


def test_groups_default_to_rates_of_the_run_without_decay():
    model, groups = both(tie_head=False)
    embed, head = build_param_groups(APART, model, groups, CoordOffsetConfig(tie_head=False))[-2:]
    assert embed["lr"] == head["lr"] == 1e-4
    assert embed["weight_decay"] == head["weight_decay"] == 0.0


def test_groups_of_one_table_warn_that_head_lr_has_no_effect():
    model, groups = both()
    config = CoordOffsetConfig(embed_lr=1e-3, head_lr=2e-3)
    with pytest.warns(UserWarning, match=r"head_lr=0.002 has no effect"):
        *_, offsets = build_param_groups(APART, model, groups, config)
    assert offsets["lr"] == 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_param_groups(APART, model, groups, CoordOffsetConfig(embed_lr=1e-3))


def test_groups_hold_every_trainable_parameter_once():
    model, groups = both(tie_head=False)
    built = build_param_groups(APART, model, groups, CoordOffsetConfig(tie_head=False))
    members = [id(p) for group in built for p in group["params"]]
    assert sorted(members) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    assert all(group["params"] for group in built)


def test_groups_that_held_offsets_alone_are_dropped():
    model = peft_model()
    table = tables_of(model).embed_offset
    rest = [p for p in model.parameters() if p.requires_grad and p is not table]
    groups = [{"params": rest, "lr": 1.0}, {"params": [table], "lr": 0.5}]
    built = build_param_groups(APART, model, groups, CoordOffsetConfig())
    assert [len(group["params"]) for group in built] == [len(rest), 1]
    assert built[-1]["lr"] == 0.5
    assert [len(group["params"]) for group in groups] == [len(rest), 1]


def test_groups_refuse_a_model_without_trainable_offsets():
    model = tiny()
    with pytest.raises(ValueError, match="found no trainable parameter of coord_offset_adapter"):
        build_param_groups(APART, model, multimodal(model), CoordOffsetConfig())
    frozen, groups = both()
    frozen.requires_grad_(False)
    with pytest.raises(ValueError, match="found no trainable parameter"):
        build_param_groups(APART, frozen, groups, CoordOffsetConfig())


@pytest.mark.parametrize("name", ["multimodal", APART])
def test_groups_name_a_parameter_left_out_or_doubled(name):
    model, groups = both()
    doubled = [*groups, {"params": groups[0]["params"][:1], "lr": 1.0}]
    with pytest.raises(ValueError, match=r"visual.*\(in 2\)"):
        build_param_groups(name, model, doubled, CoordOffsetConfig())
    with pytest.raises(ValueError, match=r"visual.*\(in 0\)"):
        build_param_groups(name, model, groups[1:], CoordOffsetConfig())


def test_groups_may_hold_iterators_or_single_parameters_as_in_torch(monkeypatch):
    monkeypatch.setattr("coord_adapter.optimizer._BUILDERS", Registry("optimizer"))
    model, _ = both()
    trained = [p for p in model.parameters() if p.requires_grad]
    register_param_groups("iterator")(lambda model, groups, config: [{"params": iter(trained)}])
    register_param_groups("given")(lambda model, groups, config: groups)
    for name, groups in (
        ("iterator", []),
        ("given", [{"params": p} for p in trained]),
        ("given", [{"params": iter(trained)}]),
    ):
        built = torch.optim.SGD(build_param_groups(name, model, groups, CoordOffsetConfig()), lr=1.0)
        assert sum(len(group["params"]) for group in built.param_groups) == len(trained)
    with pytest.raises(ValueError, match='dictionaries with "params", found Parameter'):
        build_param_groups("given", model, trained, CoordOffsetConfig())


def test_register_adds_a_name_once():
    @register_param_groups("test_only_first")
    def first(model, groups, config):
        return groups[:1]

    assert "test_only_first" in param_group_names()
    model, groups = both()
    everything = [{"params": [p for group in groups for p in group["params"]]}]
    assert build_param_groups("test_only_first", model, everything, CoordOffsetConfig()) == everything
    with pytest.raises(ValueError, match="one of this name already"):
        register_param_groups("multimodal")(first)
    with pytest.raises(ValueError, match=r"'sgd' is not registered, expected one of .*multimodal"):
        build_param_groups("sgd", model, groups, CoordOffsetConfig())


def test_groups_train_the_offsets_at_their_rates():
    model, groups = both(tie_head=False)
    first = torch.optim.AdamW(groups)
    config = CoordOffsetConfig(tie_head=False, embed_lr=1e-2)
    optimizer = torch.optim.AdamW(build_param_groups(APART, model, first.param_groups, config))
    before = [table.detach().clone() for role in offset_parameters(model).values() for table in role]
    model.train()(**batch(), labels=batch()["input_ids"]).loss.backward()
    optimizer.step()
    after = [table for role in offset_parameters(model).values() for table in role]
    steps = [(new - old).abs().max().item() for new, old in zip(after, before, strict=True)]
    assert steps == pytest.approx([1e-2, 1e-4], rel=1e-2)  # Adam's first step is the rate


def test_groups_warn_of_tables_cast_to_half_precision():
    model, _ = both()
    model.to(torch.bfloat16)
    with pytest.warns(UserWarning, match="small updates are lost"):
        build_param_groups(APART, model, multimodal(model), CoordOffsetConfig())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_param_groups(APART, model, multimodal(model), CoordOffsetConfig(dtype="bfloat16"))


def test_offset_parameters_are_none_without_offsets():
    assert offset_parameters(tiny()) == {"embed": [], "head": []}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"head_lr": 2e-3}, "head_lr=0.002 has no effect"),
        ({"head_lr": 2e-3, "embed_lr": 1e-3}, "head_lr=0.002 has no effect"),
        ({"embed_lr": 1e-3}, None),
        ({"tie_head": False, "head_lr": 2e-3}, None),
        *(({"dtype": dtype}, "small updates are lost") for dtype in ("auto", "float32")),
        *(({"dtype": dtype}, None) for dtype in ("bfloat16", "float16")),
    ],
)
def test_setting_without_effect_and_tables_that_lose_updates_are_told(settings, told, recwarn):
    model = peft_model(tie_head=settings.get("tie_head", True))
    if "dtype" in settings:
        model.to(torch.float16)
    build_param_groups(APART, model, multimodal(model), CoordOffsetConfig(**settings))
    assert [told in str(one.message) for one in recwarn.list] == ([True] if told else [])


def test_each_group_of_two_tables_is_made_of_the_one_that_held_it():
    model = peft_model(tie_head=False)
    tables = tables_of(model)
    rest = [
        p
        for p in model.parameters()
        if p.requires_grad and p is not tables.embed_offset and p is not tables.head_offset
    ]
    groups = [
        {"params": rest, "lr": 1.0},
        {"params": [tables.head_offset], "lr": 2.0, "eps": 3},
        {"params": [tables.embed_offset], "lr": 4.0},
    ]
    config = CoordOffsetConfig(tie_head=False, weight_decay=0.5)
    assert build_param_groups(APART, model, groups, config)[1:] == [
        {"params": [tables.embed_offset], "lr": 4.0, "weight_decay": 0.5},
        {"params": [tables.head_offset], "lr": 2.0, "eps": 3, "weight_decay": 0.5},
    ]
    tables.head_offset.requires_grad_(False)
    assert {role: len(found) for role, found in offset_parameters(model).items()} == {"embed": 1, "head": 0}
