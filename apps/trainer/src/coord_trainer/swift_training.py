"""ms-swift's trainer with our objective and our denominators.

Seams used (ms-swift 4.6, pinned): `Seq2SeqTrainer.compute_loss`, `_get_num_items_in_batch`,
`_get_data_collator`, `log`, `_save_checkpoint`. swift_pipeline.py puts it in swift's place.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from swift.dataloader import BatchSamplerShard, DataLoaderShard
from swift.trainers import Seq2SeqTrainer
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from coord_adapter import CoordOffsetConfig
from coord_losses import CoordObjective

from .batch_digest import BatchDigest
from .checkpoints import mark_complete, unmark
from .collating import collate_samples
from .errors import RunError
from .gradient_norms import term_gradient_norms
from .row_head import RowHead, row_selecting_head
from .run_folder import write_text
from .samples import WholeRounds
from .step_metrics import StepMetrics

# What swift's collator and trainer put into a batch and the model's forward does not take.
_NOT_FOR_FORWARD = ("compute_loss_func", "loss_scale", "channel", "text_position_ids")
_METRICS = "coord_metrics.json"


@dataclass(frozen=True)
class TrainingParts:
    """What a run hands to swift's trainer besides swift's own arguments."""

    objective: CoordObjective
    offset: CoordOffsetConfig
    fused: bool = True
    packing: bool = False
    callbacks: tuple[TrainerCallback, ...] = ()
    gradient_norms: bool = False
    first_batches: BatchDigest = field(default_factory=BatchDigest)


class CoordTrainer(Seq2SeqTrainer):
    """swift's trainer with the coordinate objective on supervised rows."""

    def __init__(self, *args, coord_parts: TrainingParts, **kwargs) -> None:
        self._objective, self._fused = coord_parts.objective, coord_parts.fused
        self._packing = coord_parts.packing
        self.offset_config = coord_parts.offset
        self._first_batches, self._norms_wanted = coord_parts.first_batches, coord_parts.gradient_norms
        self._norms: dict[str, float] = {}
        super().__init__(*args, **kwargs)
        if self.args.deepspeed and not self.is_deepspeed_enabled:
            raise RunError("training.deepspeed is set, but accelerate has not taken it up: see swift.log")
        self._step_metrics = {
            mode: StepMetrics(self._objective.config, self.args.device) for mode in ("train", "eval")
        }
        for silenced in (ProgressCallback, PrinterCallback):
            self.remove_callback(silenced)
        for callback in coord_parts.callbacks:
            self.add_callback(callback)

    def get_use_logits_to_keep(self, default_value: bool = True) -> bool:
        """No: it keeps one index for the whole batch, where the row head keeps exactly the supervised rows."""
        return False

    def _get_data_collator(self, args, template):
        return partial(
            collate_samples,
            collate=super()._get_data_collator(args, template),
            vocab=self._objective.vocab,
            packing=self._packing,
        )

    def get_eval_dataloader(self, eval_dataset=None):
        """Each sample once over all ranks, where the usual loader repeats some to fill the last batch."""
        if self.args.world_size == 1:
            return super().get_eval_dataloader(eval_dataset)
        dataset = WholeRounds(
            self.eval_dataset if eval_dataset is None else eval_dataset, self.args.world_size
        )
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

    def _get_num_items_in_batch(self, batch_samples: list[dict], device: torch.device) -> torch.Tensor | None:
        """Tokens, coordinate tokens and objects of the global batch: all ranks, all micro-batches."""
        if not batch_samples or "labels" not in batch_samples[0]:
            return None
        counts = sum(self._count(batch) for batch in batch_samples).to(device)
        if self.args.world_size > 1:
            counts = self.accelerator.gather(counts[None]).sum(dim=0)
        return counts

    def _count(self, batch: dict[str, Any]) -> torch.Tensor:
        targets = batch["labels"][:, 1:]
        supervised = targets[targets != -100]
        vocab = self._objective.vocab
        coordinates = vocab.mask(supervised).sum() if vocab is not None else 0
        return torch.tensor([len(supervised), int(coordinates), len(batch["coord_slots"].rows_M4)])

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):  # noqa: D102
        for name in _NOT_FOR_FORWARD:
            inputs.pop(name, None)
        labels_BT, slots = inputs.pop("labels"), inputs.pop("coord_slots")
        slots = slots.to(labels_BT.device)
        training = self.model.training
        if training:
            self._first_batches.add(inputs, labels_BT)
        wanted = not training or self._logs_next()
        rows = RowHead(self._objective, labels_BT, slots, want_diagnostics=wanted, fused=self._fused)
        with row_selecting_head(self.accelerator.unwrap_model(model), rows):
            # With a cache, transformers would not look for sample boundaries in packed position ids.
            outputs = model(**inputs, use_cache=False)
        output = rows.rejoin(outputs.logits)
        self._step_metrics["train" if training else "eval"].add(output, rows.diagnostics, slots.fallbacks)
        denominators = None
        if num_items_in_batch is not None:
            denominators = dict(zip(("tokens", "coord_tokens", "objects"), num_items_in_batch, strict=True))
        if self._norms_wanted and training and wanted:
            self._norms = term_gradient_norms(output, self.model.parameters(), denominators)
        loss = rows.total(output, denominators)
        if denominators is not None:
            loss = loss * self.accelerator.num_processes  # data parallelism averages over ranks afterwards
        outputs.logits, outputs.loss = None, loss
        return (loss, outputs) if return_outputs else loss

    def _save_checkpoint(self, *args, **kwargs):
        """Save, mark the checkpoint as complete, and only then let older ones go."""
        folder = Path(self.args.output_dir)
        checkpoint = folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        sums = self._step_metrics["train"].sums(self._sum_over_ranks)
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        if self.args.should_save:
            unmark(checkpoint)
        try:
            super()._save_checkpoint(*args, **kwargs)  # ends with a barrier
        except BaseException:
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise
        finally:
            self.args.save_total_limit = limit
        if self.args.should_save:
            write_text(checkpoint / _METRICS, json.dumps(sums))
            mark_complete(checkpoint)
            rotate_checkpoints(str(folder), limit, self.state.best_model_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint):
        """Also what had been added up since the last log line."""
        super()._load_optimizer_and_scheduler(checkpoint)
        path = Path(checkpoint or "") / _METRICS
        if checkpoint is not None and path.is_file() and self.args.process_index == 0:
            self._step_metrics["train"].go_on_from(json.loads(path.read_text()))

    def _logs_next(self) -> bool:
        step = self.state.global_step + 1
        return step == 1 or step % max(int(self.state.logging_steps or 1), 1) == 0

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        """Add the token-weighted means of every term since the last line (all ranks log together)."""
        mode = "train" if self.model.training else "eval"
        logs.update(self._step_metrics[mode].flush(self._sum_over_ranks, "" if mode == "train" else "eval_"))
        if mode == "train" and "train_total_loss" in logs:
            logs.update({f"grad_norm/{name}": norm for name, norm in self._norms.items()})
        if "eval_total_loss" in logs:  # swift's is a mean of batch means, which depends on how they were cut
            logs["eval_loss"] = logs["eval_total_loss"]
        super().log(logs, *args, **kwargs)

    def _sum_over_ranks(self, vector: torch.Tensor) -> torch.Tensor:
        return (
            self.accelerator.reduce(vector, reduction="sum") if self.args.world_size > 1 else vector.clone()
        )
