"""A training step of ours against plain swift with its cross-entropy, same model, same batches, one process.

Steps of the variants are timed in turns, whole runs at a time; a round's medians are compared with each other, and the
median of the rounds' ratios is printed with their range. `vocabulary` has the one of Qwen3-VL with coordinate tokens,
frozen, under LoRA; in `lengths` answers hold 1 to 12 objects, so that padding costs something. All variants see the
same batches: a ratio of times is one of tokens per second too.

    python step.py [tiny] [vocabulary] [lengths] [--rounds 5] [--clock cpu]
"""

import argparse
import contextlib
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import torch
from transformers import TrainerCallback

GROUP_A = {"custom.coord_objective.use_coord_ce": "true"}
SOFT = {"custom.coord_soft_ce_w1.enabled": "true"}
COMMON = {
    "data.shapes.heldout": 1,
    "evaluation.pictures": "none",
    "run.threads": 1,
    "training.gradient_accumulation_steps": 1,
    "training.logging_steps": 25,
    "training.save_strategy": "no",
    "training.report_to": "[]",
    "training.callbacks": "[clock]",
}
TINY = {"data.shapes.train": 320, "training.per_device_train_batch_size": 32, "training.max_steps": 20}
REAL_VOCABULARY = {
    "data.shapes.train": 128,
    "training.per_device_train_batch_size": 16,
    "training.max_steps": 8,
    "training.tuner_type": "lora",
    "training.target_modules": "[all-linear]",
    "model.tiny.hidden": 256,
}
LENGTHS = TINY | {"data.shapes.max_objects": 12, "data.shapes.max_side": 0.3, "data.shapes.min_side": 0.12}
CASES = {"tiny": (TINY, None), "vocabulary": (REAL_VOCABULARY, 152_704), "lengths": (LENGTHS, None)}
WARM_UP = 3


class Clock(TrainerCallback):
    """Seconds from the end of a step to the end of the next, data included."""

    ends: ClassVar[list[float]] = []
    now: ClassVar[Callable[[], float]] = time.perf_counter

    def __init__(self, *_):
        super().__init__()

    def on_step_end(self, args, state, control, **kwargs):
        Clock.ends.append(Clock.now())


def run(words, base, folder, plain):
    """Seconds of each step after the first few, and tokens of a step without padding (of plain swift's run)."""
    from swift.callbacks import callbacks_map
    from swift.trainers import TrainerFactory

    from coord_trainer import training
    from coord_trainer.config_files import load_run_config
    from coord_trainer.errors import RunError
    from coord_trainer.picture_set import draw_sets
    from coord_trainer.pipeline import open_run, sample_set

    torch.set_num_threads(1)  # two would time each other's waiting
    callbacks_map["clock"] = Clock
    Clock.ends = []
    config = load_run_config(None, words)
    train, _ = draw_sets(config, folder / "data")
    if plain:
        opened = open_run(config, folder, base, evaluates=False)
        pipeline = opened.pipeline
        samples = sample_set(config, opened, train)
        lengths = [len(samples[index]["input_ids"]) for index in range(len(samples))]
        tokens = statistics.mean(lengths) * config.training["per_device_train_batch_size"]
        pipeline.datasets = (Stripped(samples), None)
        pipeline._get_trainer_kwargs = dict
        TrainerFactory.TRAINER_MAPPING["causal_lm"] = "swift.trainers.Seq2SeqTrainer"
        pipeline.main()
    else:
        tokens = None
        try:
            training._train(config, folder, base, train, None)
        except RunError as error:
            assert "without a checkpoint" in str(error)
    steps = [b - a for a, b in zip(Clock.ends, Clock.ends[1:], strict=False)]
    return steps[WARM_UP:], tokens


class Stripped:
    """Samples without what only our collator takes."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return {k: v for k, v in self.samples[index].items() if not k.startswith("coord_")}


def build_base(words, folder, rows):
    from transformers import AutoModelForImageTextToText

    from coord_trainer.config_files import load_run_config
    from coord_trainer.picture_set import draw_sets
    from coord_trainer.tiny_model import base_checkpoint

    config = load_run_config(None, words)
    base = base_checkpoint(config, folder, draw_sets(config, folder / "data")[0])
    if rows:
        model = AutoModelForImageTextToText.from_pretrained(base)
        model.resize_token_embeddings(rows, mean_resizing=False)
        model.save_pretrained(base)
    return base


def compare(name, settings, rows, rounds):
    variants = {
        "plain swift": (GROUP_A, True),
        "ours, group A": (GROUP_A, False),
        "ours, soft CE + W1 + gate": (SOFT, False),
        "ours, group A, packed": (GROUP_A | {"data.packing": "true"}, False),
    }
    times = {variant: [] for variant in variants}
    counted = []
    with tempfile.TemporaryDirectory() as scratch:
        words = {
            variant: [f"{k}={v}" for k, v in (COMMON | settings | own).items()]
            for variant, (own, _) in variants.items()
        }
        base = build_base(words["plain swift"], Path(scratch), rows)
        for turn in range(rounds):
            for variant, (_, plain) in variants.items():
                steps, tokens = run(words[variant], base, Path(scratch) / f"{turn} {variant}", plain)
                times[variant].append(statistics.median(steps))
                counted += [tokens] if tokens else []
    tokens = statistics.mean(counted)
    lines = []
    for variant, medians in times.items():
        ratios = sorted(own / plain for own, plain in zip(medians, times["plain swift"], strict=True))
        median = statistics.median(medians)
        lines.append(
            f"{name}: {variant:28} {median * 1e3:8.1f} ms a step, {statistics.median(ratios):.3f} "
            f"({ratios[0]:.3f}-{ratios[-1]:.3f}) x plain swift, {tokens / median:6.0f} tokens a second"
        )
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine that does other work"
    )
    args = parser.parse_args()
    if args.clock == "cpu":
        Clock.now = time.process_time
    lines = []
    # swift tells its own story at length, on both streams.
    logging.disable(logging.WARNING)
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        for name in args.cases:
            lines += compare(name, *CASES[name], args.rounds)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
