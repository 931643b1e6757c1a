"""Integrates global denominators and the logging of terms into Hugging Face's Trainer."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from coord_losses.denominators import global_denominators
from coord_losses.hf.patch import PatchState, patch_state


def _scaled(*_: Any, **__: Any) -> None:
    """Never called: with a `compute_loss_func` the Trainer does not scale the loss for gradient accumulation."""


_REFUSED: tuple[tuple[Callable[[Any], Any], str], ...] = (
    (
        lambda trainer: trainer.args.n_gpu > 1,
        "several GPUs in one process (DataParallel) are not supported: start one process for each (torchrun)",
    ),
    (
        lambda trainer: trainer.args.label_smoothing_factor,
        "label_smoothing_factor has no effect on a coordinate objective: set it to 0, and "
        "ObjectiveConfig(label_smoothing=...) instead",
    ),
    (
        lambda trainer: _other_loss(getattr(trainer.args, "loss_type", None)),
        "loss_type={!r} has no effect on a coordinate objective, whose terms are those of ObjectiveConfig: leave it at "
        "'nll', or train without patch(model, objective)",
    ),
    (
        lambda trainer: None if trainer.compute_loss_func is _scaled else trainer.compute_loss_func,
        "compute_loss_func would never be called: {!r}. Add a term to the objective instead (CoordObjective's terms), "
        "or train without patch(model, objective)",
    ),
    (
        lambda trainer: (
            trainer.args.use_liger_kernel
            and (trainer.args.liger_kernel_config or {}).get("fused_linear_cross_entropy", True)
        ),
        "use_liger_kernel would replace the loss by plain cross-entropy, which a coordinate objective computes itself "
        "without full logits: set it to False, or liger_kernel_config={{'fused_linear_cross_entropy': False}} for the "
        "other kernels",
    ),
    (
        lambda trainer: trainer.accelerator.num_processes > 1 and trainer.accelerator.dispatch_batches,
        "dispatch_batches=True concatenates the batches of all ranks, and objects belong to the rows of one batch: set "
        "accelerator_config={{'dispatch_batches': False}}, so that each rank collates its own",
    ),
)
"""Arguments that a Trainer would accept without effect: what finds each, and what to say."""


def _other_loss(loss_type: Any) -> Any:
    return None if loss_type in (None, "nll", "chunked_nll") else loss_type


class CoordTrainerMixin:
    """Mixin for a Trainer of transformers, or a subclass, whose model is patched (`patch`).

    Each term is divided by its count over all micro-batches and ranks of the optimiser step, so that the gradients
    do not depend on how a batch is split. The means of all terms, and on logging steps the diagnostics (keys
    `diagnostics/...`), are added to the training logs. `CoordTrainer` is transformers' Trainer with this mixin.

    In evaluation the terms of each batch are divided by its own counts, as in the Trainer by default. On several ranks
    each one collates its own batches, also of an `IterableDataset` (`dispatch_batches=False`).

    Raises:
        ValueError: if the model is not patched, an argument asks for another loss (label smoothing, `loss_type`,
            `compute_loss_func`, Liger's), one process has several GPUs, or batches are to be dispatched to other ranks

    Example:
        >>> from transformers import Trainer
        >>> class MyTrainer(CoordTrainerMixin, Trainer):
        ...     pass
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        trainer: Any = self
        patch_state(trainer.model)
        for find, message in _REFUSED:
            if found := find(trainer):
                raise ValueError(message.format(found))
        if trainer.accelerator.num_processes > 1:
            trainer.accelerator.dataloader_config.dispatch_batches = False
        trainer.compute_loss_func = _scaled

    @property
    def _coord(self) -> PatchState:
        return patch_state(self.model)  # type: ignore[attr-defined]

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()  # type: ignore[misc]
        columns: list[str] = self._signature_columns  # type: ignore[attr-defined]
        columns += [] if "boxes" in columns else ["boxes"]

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Mapping[str, Tensor]]:
        """Return the micro-batches of a step, and the denominators over all micro-batches and ranks."""
        batches, _ = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        counted = [(batch["labels"], batch.get("objects")) for batch in batches]
        vocab, device = self._coord.objective.vocab, self.args.device  # type: ignore[attr-defined]
        reduce = self._reduce or (lambda x: x)
        return batches, global_denominators(counted, vocab, lambda x: reduce(x.to(device)))

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a micro-batch, scaled for accumulation and for the mean over ranks."""
        trainer: Any = self
        step, every = trainer.state.global_step + 1, max(trainer.state.logging_steps or 1, 1)
        first = step == 1 and trainer.args.logging_first_step
        self._coord.want_diagnostics = bool(model.training and (step % every == 0 or first))
        denominators = num_items_in_batch if isinstance(num_items_in_batch, Mapping) else None
        before = self._coord.passes
        outputs = model(**inputs, denominators=denominators)
        if self._coord.passes == before:
            raise ValueError(
                "the model computed a loss without the objective: a forward pass stands in place of patch's"
            )
        loss = outputs["loss"]
        if denominators is not None:  # gradients are averaged over ranks, but the counts include all ranks
            loss = loss * trainer.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log; with the training loss also the means of terms and diagnostics since the last call."""
        if "loss" in logs:
            logs = {**logs, **self._coord.flush(self._reduce)}
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    @property
    def _reduce(self) -> Callable[[Tensor], Tensor] | None:
        accelerator: Any = self.accelerator  # type: ignore[attr-defined]
        if accelerator.num_processes == 1:
            return None
        return lambda x: accelerator.reduce(x, reduction="sum")
