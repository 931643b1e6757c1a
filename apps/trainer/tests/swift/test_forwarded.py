"""Every argument that `training:` hands on acts: weights, batches, files or schedule differ from a run without it.

Settings that do not meet are tried in one run; each has an observation of its own, which must be what was asked for,
and something else in the run of reference.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from observations import (
    QUERY,
    best,
    checkpointing,
    groups,
    has,
    in_order,
    initial,
    layer,
    loader,
    logged,
    lora,
    moved,
    orthogonal,
    reentrant,
    saved,
    trained,
)
from tiny_run import read_lines, tiny_config

from coord_trainer.config.swift_arguments import argument_table

pytest.importorskip("swift")

REFERENCE = {"max_steps": 4, "save_steps": 4, "report_to": [], "eval_strategy": "no", "logging_steps": 2}
REFERENCE |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "learning_rate": 1e-3}
LORA = {"tuner_type": "lora", "target_modules": ["all-linear"], "lora_dropout": 0.0}


@pytest.fixture(scope="module")
def observe(tmp_path_factory):
    """Train the tiny model; returns what was seen of the run."""
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.tiny import base_checkpoint
    from coord_trainer.swift.open_run import OpenRun
    from coord_trainer.swift.trainer import CoordTrainer
    from coord_trainer.training_stage import train_model

    place = tmp_path_factory.mktemp("forwarded")
    plain = tiny_config(data={"shapes": {"train": 9, "heldout": 3}})
    train, heldout = draw_sets(plain, place / "data")
    base = base_checkpoint(plain, place, train)
    seen = {}

    def run(name, training):
        if name in seen:
            return seen[name]
        config = tiny_config(training=REFERENCE | {"train_dataloader_shuffle": True} | training)
        found = SimpleNamespace(folder=place / name, batches=[], rates=[], evaluated=[], cleared=[])
        compute_loss, begin, make = CoordTrainer.compute_loss, CoordTrainer.train, OpenRun.train

        def watched(trainer, model, inputs, *words, **more):
            shape, names = tuple(inputs["input_ids"].shape), tuple(inputs["coord_samples"])
            if trainer.model.training:
                found.batches.append((shape, names, inputs["input_ids"].tolist(), inputs["attention_mask"].tolist()))
                found.rates.append([group["lr"] for group in trainer.optimizer.param_groups])
            else:
                found.evaluated.append((trainer.state.global_step, shape))
            return compute_loss(trainer, model, inputs, *words, **more)

        def started(trainer, *words, **more):
            found.trainer = trainer
            found.start = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
            return begin(trainer, *words, **more)

        def opened(run, *words, **more):
            found.opened = run
            return make(run, *words, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CoordTrainer, "compute_loss", watched)
            patch.setattr(CoordTrainer, "train", started)
            patch.setattr(OpenRun, "train", opened)
            patch.setattr("transformers.trainer.clear_device_cache", lambda *words: found.cleared.append(words))
            found.checkpoint = train_model(config, found.folder, base, train, heldout).checkpoint
        found.deterministic = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
        found.files = {str(path.relative_to(found.folder)) for path in found.folder.rglob("*")}
        found.lines = read_lines(found.folder)
        seen[name] = found
        return found

    return run


DIFFERS = object()
"""What is expected of a figure that only has to be another one than in the run of reference."""
EVERY = {"eval_strategy": "steps", "eval_steps": 1}
RUNS = {
    "rates": (
        {},
        {
            "optimizer": ("multimodal", lambda s: len(initial(s)), 3),
            "learning_rate": (2e-3, lambda s: max(initial(s)), 2e-3),
            "vit_lr": (3e-4, lambda s: 3e-4 in initial(s), True),
            "aligner_lr": (4e-4, lambda s: 4e-4 in initial(s), True),
            "adam_beta1": (0.8, lambda s: groups(s, "betas")[0][0], 0.8),
            "adam_beta2": (0.9, lambda s: groups(s, "betas")[0][1], 0.9),
            "adam_epsilon": (1e-6, lambda s: groups(s, "eps")[0], 1e-6),
            "weight_decay": (0.02, lambda s: max(groups(s, "weight_decay")), 0.02),
            "warmup_ratio": (0.5, lambda s: round(s.rates[1][-1] / s.rates[2][-1], 6), 0.5),
        },
    ),
    "clipped": (
        {"lr_scheduler_type": "constant", "learning_rate": 0.1, "weight_decay": 0.0},
        {
            "optim": ("sgd", lambda s: "betas" in s.trainer.optimizer.param_groups[0], False),
            "max_grad_norm": (0.01, lambda s: 0 < moved(s) <= 4 * 0.1 * 0.01 * 1.01, True),
            "torch_empty_cache_steps": (2, lambda s: len(s.cleared), 2),
            "neftune_noise_alpha": (50.0, lambda s: s.lines[0]["train_total_loss"], DIFFERS),
        },
    ),
    "schedule": (
        {},
        {
            "lr_scheduler_type": ("polynomial", lambda s: round(s.rates[3][-1], 8), 0.00060625),
            "lr_scheduler_kwargs": ({"power": 2.0, "lr_end": 1e-4}, lambda s: round(s.rates[3][-1], 8), 0.00060625),
            "warmup_steps": (2, lambda s: [s.rates[0][-1], s.rates[1][-1]], [0, 5e-4]),
            "max_steps": (6, lambda s: s.trainer.state.global_step, 6),
            "logging_steps": (5, lambda s: logged(s, "train_total_loss")[:1], [5]),
            "logging_first_step": (False, lambda s: 1 in logged(s, "loss"), False),
            "include_num_input_tokens_seen": ("all", lambda s: bool(logged(s, "num_input_tokens_seen")), True),
            "report_to": (["tensorboard"], lambda s: any("tfevents" in name for name in s.files), True),
        },
    ),
    "epochs": (
        {"max_steps": -1},
        {
            "num_train_epochs": (2, lambda s: s.trainer.state.global_step, 6),
            "per_device_train_batch_size": (3, lambda s: s.batches[0][0][0], 3),
            "logging_strategy": ("epoch", lambda s: logged(s, "loss"), [1, 3, 6]),
            "save_strategy": ("epoch", saved, [3, 6]),
            "save_only_model": (True, lambda s: (s.checkpoint / "optimizer.pt").exists(), False),
            "max_shard_size": ("200KB", lambda s: len(list(s.checkpoint.glob("model-*.safetensors"))) > 1, True),
        },
    ),
    "one epoch": (
        {"max_steps": -1, "num_train_epochs": 3},
        {"max_epochs": (1, lambda s: s.trainer.state.global_step, 5)},
    ),
    "evaluated": (
        {},
        {
            "eval_strategy": ("steps", lambda s: bool(s.evaluated), True),
            "eval_steps": (3, lambda s: logged(s, "eval_total_loss")[-2:], [3, 4]),
            "eval_on_start": (True, lambda s: 0 in logged(s, "eval_total_loss"), True),
            "per_device_eval_batch_size": (3, lambda s: [shape[0] for _, shape in s.evaluated][:1], [3]),
            "save_steps": (3, saved, [3, 4]),
            "metric_for_best_model": (
                "text_loss",
                lambda s: best(s) is not None and best(s) in [line.get("eval_text_loss") for line in s.lines],
                True,
            ),
            "greater_is_better": (
                True,
                lambda s: best(s) == max((line.get("eval_text_loss", 0) for line in s.lines[1:]), default=0),
                True,
            ),
            "create_checkpoint_symlink": (True, lambda s: {"checkpoints/best", "checkpoints/last"} <= s.files, True),
        },
    ),
    "evaluated late": (
        {**EVERY, "save_steps": 1, "metric_for_best_model": "coord_diag/coord_tokens"},  # which never gets better
        {"eval_delay": (3, lambda s: logged(s, "eval_total_loss"), [3, 4]), "save_total_limit": (2, saved, [3, 4])},
    ),
    "stopped": (
        {**EVERY, "learning_rate": 0.0, "save_steps": 1},
        {"early_stop_interval": (1, lambda s: s.trainer.state.global_step, 2)},
    ),
    "loaded": (
        {},
        {
            "dataloader_num_workers": (1, lambda s: loader(s).num_workers, 1),
            "dataloader_persistent_workers": (True, lambda s: loader(s).persistent_workers, True),
            "dataloader_prefetch_factor": (3, lambda s: loader(s).prefetch_factor, 3),
            "dataloader_multiprocessing_context": (
                "fork",
                lambda s: loader(s).num_workers and loader(s).multiprocessing_context.get_start_method(),
                "fork",
            ),
            "dataloader_drop_last": (True, lambda s: len(loader(s)), 4),
            "train_dataloader_shuffle": (False, in_order, True),
            "gradient_accumulation_steps": (2, lambda s: len(s.batches) / s.trainer.state.global_step, 2),
        },
    ),
    "texts": (
        {},
        {
            "system": ("Look.", lambda s: "Look." in s.opened.processor.tokenizer.decode(s.batches[0][2][0]), True),
            "max_length": (40, lambda s: max(shape[1] for shape, *_ in s.batches), 40),
            "truncation_strategy": ("right", lambda s: s.opened.truncation, "right"),
        },
    ),
    "text model": (
        {},
        {"freeze_llm": (True, lambda s: has(s, "layers.0", "patch_embed", "merger"), [False, True, True])},
    ),
    "vision": (
        {},
        {
            "freeze_vit": (True, lambda s: has(s, "layers.0", "patch_embed")[1], False),
            "freeze_aligner": (True, lambda s: has(s, "layers.0", "visual.merger")[1], False),
        },
    ),
    "parts": (
        {},
        {
            "freeze_parameters": (["model.visual"], lambda s: has(s, "patch_embed"), [False]),
            "freeze_parameters_regex": ("mlp", lambda s: has(s, "mlp.up_proj"), [False]),
            "trainable_parameters": (
                ["model.visual.merger"],
                lambda s: has(s, "visual.merger", "blocks.0"),
                [True, False],
            ),
            "trainable_parameters_regex": (
                "blocks.1.attn",
                lambda s: has(s, "blocks.1.attn", "blocks.1.mlp"),
                [True, False],
            ),
        },
    ),
    "share": (
        {},
        {
            "freeze_parameters_ratio": (0.6, lambda s: len(trained(s)), DIFFERS),
            "padding_side": ("left", lambda s: any(mask[0] == 0 for *_, masks in s.batches for mask in masks), True),
        },
    ),
    "tuned": (
        {"target_modules": ["all-linear"]},
        {"tuner_type": ("lora", lambda s: (s.checkpoint / "adapter_config.json").exists(), True)},
    ),
    "recomputed": (
        {},
        {
            "gradient_checkpointing": (True, lambda s: checkpointing(s)[0], True),
            "gradient_checkpointing_kwargs": ({"use_reentrant": False}, reentrant, False),
        },
    ),
    "recomputed in part": (
        {"gradient_checkpointing": True},
        {"vit_gradient_checkpointing": (False, checkpointing, (True, False))},
    ),
    "orthogonal": ({}, {"optimizer": ("muon", orthogonal, ["attn", "merger", "mlp", "patch_embed", "self_attn"])}),
    "repeatable": ({}, {"full_determinism": (True, lambda s: s.deterministic, True)}),
}
TUNED = {
    "ranks": (
        {"target_modules": None},
        {
            "lora_rank": (5, lora("r"), 5),
            "lora_alpha": (7.0, lora("lora_alpha"), 7.0),
            "lora_dropout": (0.3, lambda s: getattr(layer(s).lora_dropout["default"], "p", 0.0), 0.3),
            "use_rslora": (True, lambda s: round(layer(s).scaling["default"], 4), round(7 / math.sqrt(5), 4)),
            "init_weights": (
                "gaussian",
                lambda s: s.start[f"base_model.model.{QUERY}.lora_A.default.weight"].std().item(),
                DIFFERS,
            ),
            "target_regex": (r".*layers\.0.*q_proj$", lambda s: len(trained(s)), 2),
        },
    ),
    "decomposed": (
        {"target_modules": None},
        {
            "use_dora": (True, lambda s: has(s, "lora_magnitude_vector"), [True]),
            "target_modules": (["q_proj"], lambda s: has(s, "k_proj"), [False]),
            "modules_to_save": (["merger"], lambda s: has(s, "merger.modules_to_save"), [True]),
        },
    ),
    "biases": (
        {},
        {
            "lora_bias": ("all", lambda s: has(s, "attn.qkv.bias", "qkv.base_layer.bias"), DIFFERS),
            "lora_dtype": ("bfloat16", lambda s: str(layer(s).lora_A["default"].weight.dtype), "torch.bfloat16"),
        },
    ),
    "faster": (
        {"optimizer": "lorap"},
        {"lorap_lr_ratio": (4.0, lambda s: round(max(initial(s)) / min(initial(s)), 6), 4.0)},
    ),
}
ALL = RUNS | TUNED


@pytest.mark.slow
@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", ALL)
def test_forwarded_arguments_act(observe, name):
    fixed, proofs = ALL[name]
    base = LORA if name in TUNED else {}
    values = {key: value for key, (value, *_) in proofs.items()}
    given = {key: value for key, value in (base | fixed | values).items() if value is not None}
    reference, seen = observe("reference LoRA" if base else "reference", base), observe(name, given)
    for key, (_, figure, expected) in proofs.items():
        found, before = figure(seen), figure(reference)
        assert found != before, f"training.{key} changes nothing: {found}"
        assert expected is DIFFERS or found == expected, f"training.{key}: {found}"


def test_every_forwarded_argument_has_a_proof_or_the_reason_why_it_needs_more_than_this_machine():
    elsewhere = {name for name, row in argument_table().items() if row.acts}
    proved = {name for _, proofs in ALL.values() for name in proofs}
    assert proved | elsewhere == set(argument_table())
    assert not proved & elsewhere
