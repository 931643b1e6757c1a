"""A training step of ours against plain swift with its cross-entropy, same model, same batches, one process.

Steps of the variants are timed in turns, whole runs at a time, and medians are compared. The second case has the
vocabulary of Qwen3-VL with coordinate tokens, frozen, under LoRA. Packed rows are compared in tokens per second.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import ClassVar

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
ROWS, WARM_UP, ROUNDS = 152_704, 3, 2


class Clock(TrainerCallback):
    """Seconds from the end of a step to the end of the next, data included."""

    ends: ClassVar[list[float]] = []

    def __init__(self, *_):
        super().__init__()

    def on_step_end(self, args, state, control, **kwargs):
        Clock.ends.append(time.perf_counter())


def run(words, base, folder, plain):
    from swift.callbacks import callbacks_map
    from swift.trainers import TrainerFactory

    from coord_trainer import training
    from coord_trainer.config_files import load_run_config
    from coord_trainer.errors import RunError
    from coord_trainer.picture_set import draw_sets
    from coord_trainer.pipeline import open_run, sample_set

    callbacks_map["clock"] = Clock
    Clock.ends = []
    config = load_run_config(None, words)
    train, _ = draw_sets(config, folder / "data")
    if plain:
        opened = open_run(config, folder, base, evaluates=False)
        pipeline = opened.pipeline
        pipeline.datasets = (Stripped(sample_set(config, opened, train)), None)
        pipeline._get_trainer_kwargs = dict
        TrainerFactory.TRAINER_MAPPING["causal_lm"] = "swift.trainers.Seq2SeqTrainer"
        pipeline.main()
    else:
        try:
            training._train(config, folder, base, train, None)
        except RunError as error:
            assert "without a checkpoint" in str(error)
    steps = [b - a for a, b in zip(Clock.ends, Clock.ends[1:], strict=False)]
    return steps[WARM_UP:]


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


def compare(name, settings, rows):
    variants = {
        "plain swift": (GROUP_A, True),
        "ours, group A": (GROUP_A, False),
        "ours, soft CE + W1 + gate": (SOFT, False),
        "ours, soft, packed": (SOFT | {"data.packing": "true"}, False),
    }
    times = {variant: [] for variant in variants}
    with tempfile.TemporaryDirectory() as scratch:
        words = {
            variant: [f"{k}={v}" for k, v in (COMMON | settings | own).items()]
            for variant, (own, _) in variants.items()
        }
        base = build_base(words["plain swift"], Path(scratch), rows)
        for turn in range(ROUNDS):
            for variant, (_, plain) in variants.items():
                folder = Path(scratch) / f"{turn} {variant}"
                times[variant] += run(words[variant], base, folder, plain)
    reference = statistics.median(times["plain swift"])
    for variant, steps in times.items():
        median = statistics.median(steps)
        print(
            f"{name}: {variant:28} {median * 1e3:8.1f} ms a step, {median / reference:.3f} x plain swift",
            flush=True,
        )


if __name__ == "__main__":
    compare("tiny", TINY, rows=None)
    compare("real vocabulary, LoRA", REAL_VOCABULARY, rows=ROWS)
