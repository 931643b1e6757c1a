"""The same global batch cut in different ways; on several ranks started as `torchrun ... trainer_cuts.py BASE OUT`."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from coord_codec import SequenceLayout
from coord_trainer import training
from coord_trainer.config_files import check_run_config
from coord_trainer.picture_set import draw_sets
from coord_trainer.ranks import part
from coord_trainer.tiny_model import base_checkpoint

OBJECTIVES = {
    "mixed": {"coord_soft_ce_w1": {"enabled": True}, "coord_objective": {"use_coord_ce": True}},
    "b": {"coord_objective": {"use_coordexp_loss": True, "use_geom_loss": True}},
}
EMPTY = (1, 3)  # without objects: on two ranks, the second one sees no coordinate in the first step
UNLEARNT = 7  # without any supervised token: in the second step


def settings(objective="mixed", training=None, **sections):
    base = {
        "data": {"markers": "obj", "shapes": {"train": 8, "heldout": 5}},
        "custom": OBJECTIVES[objective],
        "run": {"threads": 1},
        "model": {"tiny": {"hidden": 32, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2}},
        "training": {
            "max_steps": 2,
            "logging_steps": 1,
            "save_steps": 2,
            "eval_steps": 2,
            "train_dataloader_shuffle": False,
            "max_grad_norm": 0.0,
            "optim": "sgd",  # Adam would make a full step of a rounding error
            "learning_rate": 0.05,
            "lr_scheduler_type": "constant",
            "per_device_eval_batch_size": 2,
            "report_to": [],
            **(training or {}),
        },
    }
    return check_run_config(base | sections, "test")


def run(config, base, folder):
    """Two steps on 8 pictures and an evaluation on 5."""
    train, heldout = draw_sets(config, folder / "data")
    instances = list(train.instances)
    for index in EMPTY:
        instances[index] = instances[index].model_copy(update={"objects": ()})
    checkpoint, _ = training._train(config, folder, base, replace(train, instances=instances), heldout)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return checkpoint, {(line["step"], name): value for line in lines for name, value in line.items()}


def with_an_unlearnt_sample(sample_set):
    """Wraps `training.sample_set`: nothing of one training sample is learnt."""

    def wrapped(config, opened, pictures):
        samples = sample_set(config, opened, pictures)
        if pictures.name == "train":
            sample = samples._kept[UNLEARNT]
            sample["labels"] = [-100] * len(sample["labels"])
            sample["coord_layout"] = SequenceLayout((), (), (), (), ())
        return samples

    return wrapped


def build_base(folder):
    config = settings()
    return base_checkpoint(config, folder, draw_sets(config, folder / "data")[0])


def cut(batch, accumulate):
    return {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulate}


CUTS = {"2x1": cut(2, 1), "1x2": cut(1, 2)}  # per rank
WHOLE = cut(4, 1)

if __name__ == "__main__":
    base, out = sys.argv[1], Path(sys.argv[2])
    training.sample_set = with_an_unlearnt_sample(training.sample_set)
    for objective in OBJECTIVES:
        for name, training_of_rank in CUTS.items():
            run(settings(objective, training_of_rank), base, out / f"{objective}-{name}")
    part()
