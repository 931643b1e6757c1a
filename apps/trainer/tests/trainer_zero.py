"""LoRA with offsets, cut over ranks: `torchrun ... trainer_zero.py BASE OUT WAY...`, or all of it on one rank."""

import json
import sys
from pathlib import Path

from coord_trainer import training
from coord_trainer.config_files import check_run_config
from coord_trainer.picture_set import draw_sets
from coord_trainer.ranks import part

CUSTOM = {
    "coord_soft_ce_w1": {"enabled": True},
    "coord_offset": {"enabled": True, "tie_head": False, "embed_lr": 2e-2, "head_lr": 1e-2},
}


WAYS = {  # batch and data settings of a run on two ranks
    "packed": {"packing": True},
    "zero2": {"deepspeed": "zero2"},
    "zero3": {"deepspeed": "zero3"},
    "packed-zero2": {"packing": True, "deepspeed": "zero2"},
    "packed-zero3": {"packing": True, "deepspeed": "zero3"},
}


def settings(batch, packing=False, **training_of_run):
    return check_run_config(
        {
            "data": {"markers": "obj", "packing": packing, "shapes": {"train": 12, "heldout": 2}},
            "custom": CUSTOM,
            "run": {"threads": 1},
            "model": {
                "tiny": {"hidden": 32, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2}
            },
            "training": {
                "tuner_type": "lora",
                "target_modules": ["all-linear"],
                "lora_dropout": 0.0,  # swift's default of .05 draws other masks on other ranks
                "max_steps": 4,
                "logging_steps": 1,
                "save_steps": 4,
                "learning_rate": 1e-2,
                "lr_scheduler_type": "constant",
                "train_dataloader_shuffle": False,
                "max_grad_norm": 0.7,
                "per_device_train_batch_size": batch,
                "gradient_accumulation_steps": 1,
                "report_to": [],
                **training_of_run,
            },
        },
        "test",
    )


def run(config, base, folder):
    train, _ = draw_sets(config, folder / "data")
    checkpoint, _ = training._train(config, folder, base, train, None)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return checkpoint, [line for line in lines if "train_total_loss" in line]


def watch_the_optimizer():
    """Writes down how many numbers of optimizer state this rank holds, when training ends."""
    from coord_trainer.ranks import rank
    from coord_trainer.swift_training import CoordTrainer

    save = CoordTrainer._save_checkpoint

    def counted(trainer, *words, **more):
        states = trainer.optimizer.optimizer.state.values()
        held = sum(value.numel() for state in states for name, value in state.items() if "exp_avg" in name)
        (Path(trainer.args.output_dir).parent / f"state.{rank()}").write_text(str(held))
        return save(trainer, *words, **more)

    CoordTrainer._save_checkpoint = counted


def without_compiling():
    """DeepSpeed would compile a faster collective for the CPU first, for a minute."""
    import deepspeed.ops
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    deepspeed.ops.__compatible_ops__[ShareMemCommBuilder.NAME] = False


if __name__ == "__main__":
    without_compiling()
    watch_the_optimizer()
    base, out = sys.argv[1], Path(sys.argv[2])
    for way in sys.argv[3:]:
        (out / way).mkdir(parents=True, exist_ok=True)
        run(settings(2, **WAYS[way]), base, out / way)
    part()
