"""ms-swift's trainer with our objective and our denominators; `pipeline` registers it in place of swift's."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from swift.dataloader import BatchSamplerShard, DataLoaderShard
from swift.trainers import Seq2SeqTrainer
from torch import nn
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.integrations import TensorBoardCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from coord_adapter import CoordOffsetConfig, without_input_casts
from coord_codec import InputError, RunError
from coord_codec.files import read_json, write_text
from coord_detect.console import say
from coord_detect.model.card import ModelCard
from coord_detect.model.checkpoints import AP, COMPLETE, mark_complete
from coord_losses import CoordObjective, global_denominators
from coord_losses.hf.head import RowHead
from coord_losses.hf.metrics import StepMetrics
from coord_trainer.config.swift_arguments import shards_weights
from coord_trainer.data.batches import collate_samples
from coord_trainer.data.samples import WholeRounds
from coord_trainer.evaluation.during_training import AnswerSchedule
from coord_trainer.training.callbacks import StepTime
from coord_trainer.training.faults import name_failing_term, refuse_non_finite_gradient, refuse_non_finite_loss
from coord_trainer.training.head import row_selecting_head
from coord_trainer.training.metrics import log_line, term_gradient_norms
from coord_trainer.training.ranks import failing_together, gather_lists, largest_over_ranks

_NOT_FOR_FORWARD = ("compute_loss_func", "loss_scale", "channel", "text_position_ids")
"""Keys that swift's collator and trainer add to a batch and the model's forward does not accept."""
_METRICS = "coord_metrics.json"
_logger = logging.getLogger("swift.coord_trainer")


@dataclass(frozen=True, kw_only=True)
class TrainingParts:
    """What a run passes to the trainer besides swift's arguments."""

    objective: CoordObjective
    offset: CoordOffsetConfig
    fused: bool = True
    packing: bool = False
    gradient_norms: bool = False
    vision: tuple[str, ...] = ("model.visual",)
    callbacks: tuple[TrainerCallback, ...] = ()
    card: ModelCard | None = None
    answers: AnswerSchedule | None = None
    sources: int = 1
    seen: list[int] = field(default_factory=list)
    """Filled at the end of training: samples of each source, over all ranks and including those before a resume."""


class LostPassError(RunError):
    """Raised if a forward pass of a sharded model fails on one rank, which ends training on all."""


class CoordTrainer(Seq2SeqTrainer):
    """swift's trainer with the coordinate objective on supervised rows.

    It also measures the answers' AP, and marks checkpoints as complete.
    """

    def __init__(self, *args: Any, coord_parts: TrainingParts, **kwargs: Any) -> None:
        self._parts, self._objective = coord_parts, coord_parts.objective
        self.offset_config = coord_parts.offset
        super().__init__(*args, **kwargs)
        self._norms: dict[str, float] = {}
        self._unwrapped: tuple[nn.Module, nn.Module] | None = None
        self._seen_S = torch.zeros(coord_parts.sources, dtype=torch.float64)
        self._step_time = StepTime()
        weights = self._objective.config.weights
        self._step_metrics = {mode: StepMetrics(weights, self.args.device) for mode in ("train", "eval")}
        # transformers must not apply the limit: it deletes older checkpoints before the new one is complete, and at
        # the end the last one if the limit is 1 and another is the best.
        self._kept_checkpoints, self.args.save_total_limit = self.args.save_total_limit, None
        if self.args.deepspeed and not self.is_deepspeed_enabled:
            raise RunError("training.deepspeed is set, but accelerate does not use it: see swift.log")
        if self.is_fsdp_enabled:
            raise InputError(
                "ACCELERATE_USE_FSDP: a launcher selected FSDP, with which training was not tried, and its checkpoints "
                "cannot be opened by prediction and export; start with torchrun, and shard with training.deepspeed"
            )
        for silenced in (ProgressCallback, PrinterCallback):
            self.remove_callback(silenced)
        self.add_callback(self._step_time)
        if coord_parts.answers is not None:
            self.args.metric_for_best_model, self.args.greater_is_better = AP, True
            self.add_callback(coord_parts.answers)
        elif self.eval_dataset is not None:
            metrics = self._step_metrics["eval"]
            logged = (*log_line(metrics, dict.fromkeys(metrics.layout, 0.0), "eval_"), "eval_loss")
            names = sorted(name.removeprefix("eval_") for name in logged)
            name = (self.args.metric_for_best_model or "loss").removeprefix("eval_")
            if name not in names:
                raise InputError(
                    f"training.metric_for_best_model: expected one of {', '.join(names)}, found {name!r}; for AP set "
                    "evaluation.ap_steps"
                )
        for callback in coord_parts.callbacks:
            self.add_callback(callback)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Compute the evaluation losses and, if they are due, the scores of answers.

        A failure is printed, logged as `eval_failed` and skipped on all ranks, and training continues.

        Raises:
            LostPassError: the model's forward pass failed under ZeRO-3 on several ranks.
        """
        answers, started = self._parts.answers, time.monotonic()
        metrics: dict[str, float] = {}
        devices = [self.args.device] if self.args.device.type == "cuda" else []
        # An evaluation must not change the random numbers of training
        with self._step_time.paused(), torch.random.fork_rng(devices):
            self.model.eval()
            if answers is None or not answers.alone:
                metrics |= self._attempt("evaluation losses", self._evaluation_losses)
            if answers is not None and answers.due:
                metrics |= self._attempt("scoring of answers", self._answer_scores)
        if metrics:
            self.log(metrics | {"eval_runtime": round(time.monotonic() - started, 3)})
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _attempt(self, what: str, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        try:
            return measure()
        except LostPassError:
            raise
        except Exception as error:
            _logger.warning("step %d: the %s failed", self.state.global_step, what, exc_info=True)
            message = f"{what}: {type(error).__name__}: {str(error).strip() or 'no message'}".splitlines()[0]
        say(f"  step {self.state.global_step}: {message}; it is skipped, and training continues (see swift.log)")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # it may have failed for lack of memory
        self._step_metrics["eval"].clear()
        failed: dict[str, Any] = {"eval_failed": message}
        self.log(failed)
        return {}

    def _answer_scores(self) -> dict[str, float]:
        assert self._parts.answers is not None
        scorer, device = self._parts.answers.scorer, self.args.device
        with failing_together(device):
            share = scorer.answer(self.model, self.args.process_index, self.args.world_size)
        answers, scores = gather_lists(share), dict[str, float]()
        with failing_together(device):
            if self.args.process_index == 0:
                scores = scorer.score(answers)
                self._show(scorer.drawn(answers))
        return {f"eval_{name}": largest_over_ranks(float(scores.get(name, 0.0)), device) for name in ("AP", "AP50")}

    def _show(self, images: dict[str, np.ndarray]) -> None:
        """Send images with the boxes answered to TensorBoard, if the run reports to it."""
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, TensorBoardCallback) and callback.tb_writer is not None:
                for name, image_HWC in images.items():
                    callback.tb_writer.add_image(name, image_HWC, self.state.global_step, dataformats="HWC")

    def _determine_best_metric(self, metrics: Any, trial: Any) -> bool:
        """Leave the best checkpoint unchanged if its metric was not measured."""
        name = self.args.metric_for_best_model or ""
        return name.removeprefix("eval_") in {key.removeprefix("eval_") for key in metrics} and (
            super()._determine_best_metric(metrics, trial)
        )

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Save, mark the checkpoint as complete, and only then delete older ones."""
        folder = Path(self.args.output_dir)
        checkpoint = folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        sums = self._step_metrics["train"].sums(self._sum_over_ranks) | {"seen": self._samples_seen()}
        if self.args.should_save:
            (checkpoint / COMPLETE).unlink(missing_ok=True)  # before it is written again
        try:
            with self._step_time.paused():
                super()._save_checkpoint(*args, **kwargs)  # ends with a barrier
        except BaseException:
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise
        if self.args.should_save:
            write_text(checkpoint / _METRICS, json.dumps(sums))
            if self._parts.card is not None:
                self._parts.card.write(checkpoint)
            mark_complete(checkpoint)
            rotate_checkpoints(str(folder), self._kept_checkpoints, self.state.best_model_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> Any:
        """Also load the sums since the last log line."""
        super()._load_optimizer_and_scheduler(checkpoint)
        path = Path(checkpoint or "") / _METRICS
        if checkpoint is not None and path.is_file() and self.args.process_index == 0:
            sums = read_json(path)
            self._step_metrics["train"].restore(sums)
            self._seen_S += torch.tensor(sums.get("seen", 0), dtype=self._seen_S.dtype)

    def _samples_seen(self) -> list[int]:
        """Return the samples of each source that were trained on, over all ranks and including before a resume."""
        return [round(count) for count in self._sum_over_ranks(self._seen_S.to(self.args.device)).tolist()]

    def train(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        output = super().train(*args, **kwargs)
        self._parts.seen[:] = self._samples_seen()
        return output

    def _sum_over_ranks(self, vector: torch.Tensor) -> torch.Tensor:
        return self.accelerator.reduce(vector, reduction="sum") if self.args.world_size > 1 else vector.clone()

    def get_use_logits_to_keep(self, default_value: bool = True) -> bool:
        """Return False: swift would keep the same positions of all samples, but the row head selects the exact rows."""
        return False

    def _get_data_collator(self, args: Any, template: Any) -> Any:
        return partial(
            collate_samples,
            collate=super()._get_data_collator(args, template),
            vocab=self._objective.vocab,
            packing=self._parts.packing,
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return a loader that serves each sample once over all ranks; the usual one repeats some in the last batch."""
        if self.args.world_size == 1:
            return super().get_eval_dataloader(eval_dataset)
        dataset = WholeRounds(self.eval_dataset if eval_dataset is None else eval_dataset, self.args.world_size)
        sampler = BatchSamplerShard(
            len(dataset), self.args.eval_batch_size, shuffle=False, drop_last=False, data_seed=None
        )
        return DataLoaderShard(
            dataset,
            device=self.accelerator.device,
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def _evaluation_losses(self) -> dict[str, float]:
        device = self.args.device
        with failing_together(device):
            loader = self.get_eval_dataloader()
            batches = iter(loader)
        for _ in range(len(loader)):
            with failing_together(device):
                batch = next(batches)
            with self._forward_failing_together(device):
                self.prediction_step(self.model, batch, prediction_loss_only=True)
        losses = self._log_line("eval", "eval_")
        return losses | {"eval_loss": losses["eval_total_loss"]}

    @contextmanager
    def _forward_failing_together(self, device: torch.device) -> Iterator[None]:
        """Make a failed forward pass fail on all ranks; under ZeRO-3 the others already wait for this one's weights."""
        if self.args.world_size == 1 or not shards_weights(self.args.deepspeed):
            with failing_together(device):
                yield
            return
        try:
            yield
        except Exception as error:
            _logger.warning("step %d: the evaluation losses failed", self.state.global_step, exc_info=True)
            raise LostPassError(
                f"step {self.state.global_step}: the evaluation losses failed inside the model on rank "
                f"{self.args.process_index} ({type(error).__name__}: {error}), and under ZeRO-3 no rank can continue "
                "without another's part of the weights; continue with run.resume=true and a smaller "
                "training.per_device_eval_batch_size, or training.eval_strategy=no"
            ) from error

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Any]], device: torch.device) -> torch.Tensor | None:
        """Count tokens, coordinate tokens and objects of the global batch: all ranks, all micro-batches."""
        if not batch_samples or "labels" not in batch_samples[0]:
            return None
        if not self.model.training:  # evaluations have their own counts, and must not wait for a rank that failed
            return None
        counted = [(batch["labels"], batch["coord_slots"]) for batch in batch_samples]
        counts = global_denominators(counted, self._objective.vocab, lambda x: self._sum_over_ranks(x.to(device)))
        return torch.stack(list(counts.values()))

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a micro-batch forward and backward."""
        with without_input_casts(self.model, self.accelerator.native_amp):
            return super().training_step(model, inputs, *args, **kwargs)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a micro-batch, divided by the counts of the whole optimizer step."""
        training, parts = self.model.training, self._parts
        denominators = None
        if num_items_in_batch is not None:
            denominators = dict(zip(("tokens", "coord_tokens", "objects"), num_items_in_batch, strict=True))

        # The batch: what the model takes, and what only the loss and the logs need
        for name in _NOT_FOR_FORWARD:
            inputs.pop(name, None)
        labels_BT, slots = inputs.pop("labels"), inputs.pop("coord_slots")
        samples, sources = inputs.pop("coord_samples", ()), inputs.pop("coord_sources", ())
        if training:
            self._seen_S += torch.bincount(torch.tensor(sources, dtype=torch.long), minlength=len(self._seen_S))

        # The forward pass, with head and objective on the supervised rows
        unwrapped = self._unwrap(model)
        rows = RowHead(
            self._objective,
            labels_BT,
            slots.to(labels_BT.device),
            want_diagnostics=not training or self._logs_next(),
            fused=parts.fused,
            idle=() if "pixel_values" in inputs else idle_vision(unwrapped, parts.vision),
            denominators=denominators,
        )
        with row_selecting_head(unwrapped, active_head(unwrapped), rows), name_failing_term():
            # With a cache, transformers ignores the sample boundaries in packed position ids.
            outputs = model(**inputs, use_cache=False)
        output = rows.rejoin(outputs.logits)
        loss = rows.total(output)

        if training:
            refuse_non_finite_loss(output, loss, self.state.global_step + 1, samples)
        self._step_metrics["train" if training else "eval"].add(output, rows.diagnostics, slots.fallbacks)
        if parts.gradient_norms and training and self._logs_next():
            self._norms = term_gradient_norms(output, self.model.parameters(), denominators)
        if denominators is not None:  # they include all ranks, over which data parallelism averages afterwards
            loss = loss * self.accelerator.num_processes
        outputs.logits, outputs.loss = None, loss
        return (loss, outputs) if return_outputs else loss

    def _unwrap(self, model: nn.Module) -> nn.Module:
        """Return the model inside its wrappers; accelerate, asked once, parses the metadata of DeepSpeed each time."""
        if self._unwrapped is None or self._unwrapped[0] is not model:
            self._unwrapped = model, self.accelerator.unwrap_model(model)
        return self._unwrapped[1]

    def floating_point_ops(self, inputs: Any) -> int:
        """Return transformers' estimate, from parameters that are counted once and not in each step."""
        return 6 * int(inputs["input_ids"].numel()) * self._inner_parameters

    @cached_property
    def _inner_parameters(self) -> int:
        return int(self.model.num_parameters(exclude_embeddings=True)) if hasattr(self.model, "num_parameters") else 0

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Return the gradient's norm, which has to be finite (swift removes a NaN without a word)."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        scaled = self.accelerator.scaler is not None or (bool(self.args.deepspeed) and self.args.fp16)
        if norm is not None:
            refuse_non_finite_gradient(float(norm), self.state.global_step + 1, scaled)
        return norm

    def _logs_next(self) -> bool:
        step = self.state.global_step + 1
        return bool(step == 1 or step % max(int(self.state.logging_steps or 1), 1) == 0)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the means of every loss term since the last log line, over all ranks, and the seconds of a step."""
        if self.model.training and (line := self._log_line("train", "")):
            logs |= line | {f"grad_norm/{name}": norm for name, norm in self._norms.items()}
        if "loss" in logs:
            logs |= self._step_time.since_last(self.state.global_step)
        super().log(logs, *args, **kwargs)

    def _log_line(self, mode: str, prefix: str) -> dict[str, float]:
        metrics = self._step_metrics[mode]
        return log_line(metrics, metrics.flush(self._sum_over_ranks), prefix)


def idle_vision(model: Any, names: Sequence[str] = ("model.visual",)) -> tuple[nn.Parameter, ...]:
    """Return the trained parameters of vision tower and merger, which a batch without images does not use.

    Raises:
        AttributeError: the model has no such part.
    """
    core = model.get_base_model() if hasattr(model, "get_base_model") else model
    parameters = [p for name in names for p in core.get_submodule(name).parameters() if p.requires_grad]
    return tuple({id(parameter): parameter for parameter in parameters}.values())


def active_head(model: Any) -> Any:
    """Return the head of a model, with or without PEFT and its `modules_to_save`."""
    head: Any = model.get_output_embeddings()
    copies = getattr(head, "modules_to_save", None)
    return head if copies is None else copies[head.active_adapters[0]]
