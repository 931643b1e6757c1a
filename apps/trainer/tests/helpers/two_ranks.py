"""All runs on two ranks in one pair of processes, since importing swift takes longer than the runs.

`torchrun ... two_ranks.py CUT_BASE LORA_BASE OUT` trains the same global batch as one rank (`CUT`), LoRA with offsets
packed, also under DeepSpeed (`WAYS`), and under DeepSpeed a mixture of sources (`OUT/sources`), one that is never
interrupted (`OUT/whole`) and the rest of one that was killed (`OUT/killed`).
"""

import json
import sys
from pathlib import Path

from tiny_run import TINY, read_lines, tiny_config

from coord_codec import SequenceLayout
from coord_detect.console import rank
from coord_trainer import training_stage as stage
from coord_trainer.config.run_config import check_run_config
from coord_trainer.console import leave_process_group
from coord_trainer.data.shapes import draw_sets
from coord_trainer.model.tiny import base_checkpoint
from coord_trainer.run import train_and_score

OBJECTIVE = {
    "coord_soft_ce_w1": {"enabled": True},
    "coord_objective": {"use_coord_ce": True, "use_coordexp_loss": True, "use_geom_loss": True},
}
"""Every term, whatever it is divided by."""
EMPTY = (1, 3)
"""Training images without objects: on two ranks, the second one has no coordinate in the first step."""
UNLEARNT = 7
"""The training sample without any supervised token: in the second step."""


def cut(batch, accumulate):
    return {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulate}


CUT = cut(1, 2)
"""Settings per rank of the runs on two ranks."""
WHOLE = cut(4, 1)
WAYS = {"packed": {"packing": True}, "packed-zero3": {"packing": True, "deepspeed": "zero3"}}
"""Batch and data settings of the LoRA runs on two ranks."""
RESUMED = {"deepspeed": "zero2", "per_device_train_batch_size": 1}
"""Training settings of the run that is killed and goes on."""

MIXED = {"lora_dropout": 0.0, "gradient_accumulation_steps": 1, "max_steps": 3, "logging_steps": 1}
MIXED |= {"deepspeed": "zero2", "use_dora": True}
"""Training settings of the mixture that one rank sees as well."""


def cut_config(training=WHOLE):
    return tiny_config(
        data={"shapes": {"train": 8, "heldout": 5}},
        custom=OBJECTIVE,
        training={
            "max_steps": 2,
            "save_steps": 2,
            "eval_steps": 2,
            "max_grad_norm": 0.0,
            "optim": "sgd",  # Adam would make a full step of a rounding error
            "learning_rate": 0.05,
            "lr_scheduler_type": "constant",
            "per_device_eval_batch_size": 2,
            "report_to": [],
            **training,
        },
    )


def run_cut(config, base, folder):
    """Two steps on 8 images and an evaluation on 5; returns checkpoint and logged figures by (step, name)."""
    train, heldout = draw_sets(config, folder / "data")
    instances = list(train.instances)
    for index in EMPTY:
        instances[index] = instances[index].model_copy(update={"objects": ()})
    checkpoint = stage.train_model(config, folder, base, train.select(instances), heldout).checkpoint
    return checkpoint, {(line["step"], name): value for line in read_lines(folder) for name, value in line.items()}


def with_an_unlearnt_sample(sample_set):
    """Wrap `train.sample_set`: nothing of one training sample is supervised."""

    def wrapped(config, opened, images, **more):
        samples = sample_set(config, opened, images, **more)
        source = samples.mixture.sources[0]
        if source.name == "train":
            sample = samples._kept[0][UNLEARNT]
            sample["labels"] = [-100] * len(sample["labels"])
            sample["coord_layout"] = SequenceLayout((), (), (), (), ())
        return samples

    return wrapped


def lora_config(batch, packing=False, **training):
    return tiny_config(
        data={"packing": packing, "shapes": {"train": 12, "heldout": 2}},
        custom={
            "coord_soft_ce_w1": {"enabled": True},
            "coord_offset": {"enabled": True, "tie_head": False, "embed_lr": 2e-2, "head_lr": 1e-2},
        },
        model={"tiny": TINY},
        training={
            "tuner_type": "lora",
            "target_modules": ["all-linear"],
            "lora_dropout": 0.0,  # swift's default of .05 draws other masks on other ranks
            "max_steps": 2,
            "save_steps": 2,
            "learning_rate": 1e-2,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.7,
            "per_device_train_batch_size": batch,
            "gradient_accumulation_steps": 1,
            "report_to": [],
            **training,
        },
    )


def run_lora(config, base, folder):
    """Two steps on 12 images; returns checkpoint and training log lines."""
    train, _ = draw_sets(config, folder / "data")
    checkpoint = stage.train_model(config, folder, base, train, None).checkpoint
    return checkpoint, [line for line in read_lines(folder) if "train_total_loss" in line]


def build_base(config, folder):
    return base_checkpoint(config, folder, draw_sets(config, folder / "data")[0])


def scored_config(base):
    config = cut_config({**cut(2, 1), "max_steps": 3, "save_steps": 3, "eval_steps": 1})
    asked = {"ap_steps": 1, "ap_images": 5, "batch_size": 1, "max_new_tokens": 24}
    sections = {"evaluation": asked, "model": {"path": base}}
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update=values) for name, values in sections.items()}
    )


def scored_run(base, out):
    """Answers are scored at each of three steps; an evaluation fails on the second rank, another one on the first.

    Each rank writes how often it has answered: one image of its share at a time.
    """
    from coord_detect.answers import local
    from coord_trainer.evaluation.during_training import SubsetScorer
    from coord_trainer.swift.trainer import CoordTrainer

    take, answer, score, calls = CoordTrainer.prediction_step, SubsetScorer.answer, SubsetScorer.score, []
    answer_images, answered = local.answer_images, []

    def take_or_fail(trainer, *words, **more):
        if trainer.state.global_step == 1 and rank() == 1:
            raise RuntimeError("no memory on the second rank")
        return take(trainer, *words, **more)

    def answer_or_fail(scorer, model, *share):
        calls.append(share)
        if len(calls) == 2 and rank() == 1:
            raise RuntimeError("no answer on the second rank")
        return answer(scorer, model, *share)

    def listed(scorer, answers):
        (out / f"answers-{len(calls)}.json").write_text(json.dumps(sorted(one["image_id"] for one in answers)))
        if len(calls) == 3:
            raise RuntimeError("no score on the first rank")
        return score(scorer, answers)

    CoordTrainer.prediction_step, SubsetScorer.answer, SubsetScorer.score = take_or_fail, answer_or_fail, listed
    local.answer_images = lambda *words, **more: answered.append(1) or answer_images(*words, **more)
    train_and_score(scored_config(base), out)
    (out / f"calls.{rank()}").write_text(str(len(answered)))
    CoordTrainer.prediction_step, SubsetScorer.answer, SubsetScorer.score = take, answer, score
    local.answer_images = answer_images


def count_optimizer_state():
    """Write down how many numbers of optimizer state this rank holds when a LoRA run ends."""
    from coord_trainer.swift.trainer import CoordTrainer

    save = CoordTrainer._save_checkpoint

    def counted(trainer, *words, **more):
        states = trainer.optimizer.optimizer.state.values()
        held = sum(value.numel() for state in states for name, value in state.items() if "exp_avg" in name)
        (Path(trainer.args.output_dir).parent / f"state.{rank()}").write_text(str(held))
        return save(trainer, *words, **more)

    CoordTrainer._save_checkpoint = counted


def without_compiling():
    """Keep DeepSpeed from compiling a faster collective for the CPU, which takes a minute."""
    import deepspeed.ops
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    deepspeed.ops.__compatible_ops__[ShareMemCommBuilder.NAME] = False


def mix(out, settings, *runs):
    """Runs on sources: the name of the folder, and whether it goes on."""
    settings = json.loads((out / settings).read_text())
    for name, goes_on in runs:
        of_run = {**settings["run"], "resume": goes_on}
        train_and_score(check_run_config({**settings, "run": of_run}, "test"), out / name)


def main(cut_base, lora_base, out):
    without_compiling()
    sample_set = stage.sample_set
    stage.sample_set = with_an_unlearnt_sample(sample_set)
    run_cut(cut_config(CUT), cut_base, out / "cut")
    stage.sample_set = sample_set
    scored_run(cut_base, out / "scored")
    count_optimizer_state()
    for way, changed in WAYS.items():
        (out / way).mkdir(parents=True, exist_ok=True)
        run_lora(lora_config(2, **changed), lora_base, out / way)
    # After all without DeepSpeed, which accelerate does not leave again.
    mix(out, "sources.json", ("sources", False))
    mix(out, "resumed.json", ("whole", False), ("killed", True))
    leave_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
