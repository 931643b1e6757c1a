"""Compares the time of a training step with plain ms-swift and its cross-entropy, on the same model and batches.

The variants alternate, a whole run at a time, in one process. Medians are compared within a round, and the median of
the rounds' ratios is printed with its range. `vocabulary` has the vocabulary of Qwen3-VL with coordinate tokens,
frozen, and LoRA; in `lengths` answers contain 1 to 12 objects, so that padding takes time. Since all variants train on
the same batches, a ratio of times is also a ratio of tokens per second. All embed patches by a matrix product in place
of a convolution.

    uv run python apps/trainer/benchmarks/step.py [tiny] [vocabulary] [lengths] [--rounds 5] [--clock cpu]
"""

import contextlib
import functools
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar
from unittest import mock

import torch
import typer
from transformers import TrainerCallback

GROUP_A = {"custom.coord_objective.use_coord_ce": "true"}
SOFT = {"custom.coord_soft_ce_w1.enabled": "true"}
COMMON = {
    "data.shapes.heldout": 1,
    "evaluation.images": "none",
    "run.threads": 1,
    "training.gradient_accumulation_steps": 1,
    "training.logging_steps": 25,
    "training.save_steps": 1000,
    "training.report_to": "[]",
}
TINY = {"data.shapes.train": 320, "training.per_device_train_batch_size": 32, "training.max_steps": 20}
REAL_VOCABULARY = {
    "data.shapes.train": 128,
    "training.per_device_train_batch_size": 16,
    "training.max_steps": 8,
    "training.tuner_type": "lora",
    "training.target_modules": "[all-linear]",
    "model.tiny.hidden": 256,
    "model.tiny.heads": 4,
}
LENGTHS = TINY | {"data.shapes.max_objects": 12, "data.shapes.max_side": 0.3, "data.shapes.min_side": 0.12}
CASES = {"tiny": (TINY, None), "vocabulary": (REAL_VOCABULARY, 152_704), "lengths": (LENGTHS, None)}
Case = StrEnum("Case", {name: name for name in CASES})
WARM_UP = 3


class ClockKind(StrEnum):
    """The clock that times a step."""

    wall = "wall"
    cpu = "cpu"


class Clock(TrainerCallback):
    """Records when each step ends, so that a step includes its data."""

    ends: ClassVar[list[float]] = []
    now: ClassVar[Callable[[], float]] = time.perf_counter

    def __init__(self, *_):
        super().__init__()

    def on_step_end(self, args, state, control, **kwargs):
        Clock.ends.append(Clock.now())


def run(words, base, folder, plain):
    """Return the seconds of each step after the first few, and for plain swift the tokens per step without padding."""
    from swift.trainers import TrainerFactory
    from transformers import Trainer

    from coord_codec import RunError
    from coord_trainer import training_stage as stage
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.swift.open_run import open_run, sample_set

    torch.set_num_threads(1)  # two threads would wait for each other
    Clock.ends = []
    made = Trainer.__init__

    @functools.wraps(made)  # swift looks at the parameters
    def with_clock(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.add_callback(Clock)

    config = load_run_config(None, words)
    train, _ = draw_sets(config, folder / "data")
    clocked = mock.patch.object(Trainer, "__init__", with_clock)
    if plain:
        opened = open_run(config, folder, base, evaluates=False)
        pipeline = opened.pipeline
        samples = sample_set(config, opened, train)
        lengths = [len(samples[index]["input_ids"]) for index in range(len(samples))]
        tokens = statistics.mean(lengths) * config.training["per_device_train_batch_size"]
        pipeline.datasets = (Stripped(samples), None)
        pipeline._get_trainer_kwargs = dict
        TrainerFactory.TRAINER_MAPPING["causal_lm"] = "swift.trainers.Seq2SeqTrainer"
        with clocked:
            pipeline.main()
    else:
        tokens = None
        try:
            with clocked:
                stage.train_model(config, folder, base, train, None)
        except RunError as error:
            assert "without a checkpoint" in str(error)
    steps = [b - a for a, b in zip(Clock.ends, Clock.ends[1:], strict=False)]
    return steps[WARM_UP:], tokens


class Stripped:
    """Samples without the fields that only our collator uses."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return {k: v for k, v in self.samples[index].items() if not k.startswith("coord_")}


def build_base(words, folder, rows):
    from transformers import AutoModelForImageTextToText

    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.tiny import base_checkpoint

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


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def main(
    cases: Annotated[list[Case], typer.Argument(help="which models and data")] = list(Case),  # noqa: B006
    rounds: Annotated[int, typer.Option(min=1, help="runs of each variant")] = 2,
    clock: Annotated[ClockKind, typer.Option(help="cpu: on a machine that does other work")] = ClockKind.wall,
) -> None:
    """Print time per step and its ratio to plain ms-swift's, for each case and variant."""
    if clock is ClockKind.cpu:
        Clock.now = time.process_time
    lines = []
    # swift prints and logs at length, on both streams.
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        _without_logs(),
    ):
        for case in cases:
            lines += compare(case.value, *CASES[case.value], rounds)
    print("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
