"""Patches a causal model of transformers to compute the objective, applying its head to supervised rows only."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from coord_losses.hf.head import Denominators, RowHead, replaced_forward
from coord_losses.hf.metrics import StepMetrics
from coord_losses.objective import CoordObjective
from coord_losses.output import ObjectiveOutput, denominator_of
from coord_losses.slots import ObjectSlots
from coord_losses.terms.loss_term import LossTerm
from coord_losses.terms.registry import registered_terms

ModelT = TypeVar("ModelT", bound=nn.Module)
_ADDED_ARGUMENTS = ("labels", "objects", "denominators")
_ROUTER = "router_aux_loss"
_STATE = "_coord_state"
_PROBE = (-90.0, -12.0, -1.0, -0.25, 0.5, 3.0, 40.0)
"""Logits returned by the head in a model's first forward pass, to detect how the model transforms them."""


@dataclass(frozen=True)
class LogitTransform:
    """The transformation that a model applies to the logits of its head: a scale, then a cap."""

    logit_scale: float = 1.0
    softcap: float | None = None

    @classmethod
    def candidates(cls, model: nn.Module) -> "list[LogitTransform]":
        """Return the transformation in the model's configuration, and none.

        PaliGemma ignores its text model's cap before transformers 5.23.
        """
        config: Any = getattr(model, "config", None)
        found: dict[str, float] = {}
        for part in (config, getattr(config, "text_config", None)):
            for name in ("logit_scale", "logits_scaling", "lm_head_multiplier", "final_logit_softcapping"):
                if isinstance(value := getattr(part, name, None), int | float) and value:
                    found.setdefault(name, value)
        scale = found.get("logit_scale", 1.0) * found.get("lm_head_multiplier", 1.0) / found.get("logits_scaling", 1.0)
        return list(dict.fromkeys([cls(scale, found.get("final_logit_softcapping")), cls()]))

    def explains(self, before: Tensor, after: Tensor) -> bool:
        """Return whether this transformation of the head's logits gives the logits that the model returned."""
        expected = before.double() * self.logit_scale
        if self.softcap is not None:
            expected = self.softcap * torch.tanh(expected / self.softcap)
        error = 2 * torch.finfo(before.dtype).eps
        return after.shape == before.shape and torch.allclose(after.double(), expected, rtol=2 * error, atol=error)

    @classmethod
    def find(cls, candidates: "list[LogitTransform]", before: Tensor, after: Tensor) -> "LogitTransform":
        """Return the first candidate that explains the logits that the model returned.

        Raises:
            ValueError: if there is none
        """
        for transform in candidates:
            if transform.explains(before, after):
                return transform
        raise ValueError(
            "the model changes its logits after the head in a way that its configuration does not declare and the "
            "fused form would ignore: use patch(model, objective, fused=False)"
        )


@dataclass
class PatchState:
    """The objective of a patched model and the sums to be logged.

    Attributes:
        objective: the objective
        fused: whether the fused form is used if the head allows it
        want_diagnostics: whether the next forward passes add diagnostics
        metrics: what has been added since the last `flush`; None before the first forward pass in training
        after: the transformation of the head's logits; None before the first forward pass
    """

    objective: CoordObjective
    fused: bool
    want_diagnostics: bool = False
    metrics: StepMetrics | None = None
    after: LogitTransform | None = None

    def add(
        self, output: ObjectiveOutput, diagnostics: Mapping[str, LossTerm], router_loss: Tensor | None = None
    ) -> None:
        """Add terms, diagnostics and the weighted loss of a mixture's router, if there is one, to the sums to log."""
        tokens, measured = output.counts["tokens"], dict(diagnostics)
        if router_loss is not None:
            measured[_ROUTER] = LossTerm(router_loss * tokens, tokens)
        if self.metrics is None:
            self.metrics = StepMetrics(output.weights, tokens.device, (_ROUTER,))
        self.metrics.add(output, measured)

    def flush(self, reduce: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
        """Return the means of terms and diagnostics since the last call, and reset the sums.

        Args:
            reduce: function that sums a tensor over the ranks; None for one rank
        """
        if self.metrics is None or not (sums := self.metrics.flush(reduce)):
            return {}
        means, measured = self.metrics.means(sums)
        log_line = {registered_terms()[name].log_key: mean for name, mean in means.items()}
        return log_line | {name if name == _ROUTER else f"diagnostics/{name}": x for name, x in measured.items()}


def patch(model: ModelT, objective: CoordObjective, *, fused: bool = True) -> ModelT:
    """Make a causal language model of transformers compute the objective in its forward pass, in place.

    With `labels`, the patched model also accepts `objects` (`ObjectSlots`) and `denominators` (see
    `global_denominators`), applies its head to supervised rows only and returns `loss`, with `logits` None. Without
    labels, and in `generate`, it behaves as before. If the head is a plain linear layer, with or without a bias, the
    fused form is used and no logits are computed. The model's transformation of its logits (Gemma's soft-capping, the
    scale of Cohere, Granite and Falcon-H1) is read from its configuration and verified in the first forward pass. For
    a head with LoRA or hooks, the readable form is used with the logits of the supervised rows. With
    `output_router_logits`, a mixture of experts adds its router's auxiliary loss times `router_aux_loss_coef`, as
    without the patch; each micro-batch has the part of its tokens in `denominators`. A plain Trainer that
    accumulates gradients trains cross-entropies only, since it counts tokens and no objects (`num_items_in_batch`).

    Args:
        model: any causal model of transformers with output embeddings, also inside PEFT
        objective: the objective
        fused: whether to use the fused form if the head allows it

    Returns:
        The same model.

    Raises:
        ValueError: if the model is an encoder-decoder, or has no output embeddings

    Example:
        >>> from transformers import Qwen2Config, Qwen2ForCausalLM
        >>> from coord_codec import CoordGrid, CoordVocab
        >>> from coord_losses import ObjectiveConfig
        >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = Qwen2ForCausalLM(Qwen2Config(vocab_size=20, num_key_value_heads=2, **sizes))
        >>> objective = CoordObjective(ObjectiveConfig.soft(), CoordVocab(10, CoordGrid(bins=10, scale=10)))
        >>> ids = torch.tensor([[1, 12, 13, 14, 15, 2]])
        >>> outputs = patch(model, objective)(input_ids=ids, labels=ids)
        >>> outputs.loss.requires_grad, outputs.logits
        (True, None)
    """
    unpatch(model)
    name = type(model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise ValueError(
            f"{name} is an encoder-decoder: its decoder's labels are not shifted as a causal model's are, and its "
            "rows would be paired with the wrong tokens; use a decoder-only model, or call CoordObjective yourself "
            "on the rows that predict each label"
        )
    find = getattr(model, "get_output_embeddings", None)
    if find is None or find() is None:
        raise ValueError(f"{name} has no output embeddings: patch a causal language model (...ForCausalLM)")
    model.__class__ = _patched_class(type(model))  # type: ignore[assignment]
    model.__dict__[_STATE] = PatchState(objective, fused)
    return model


def unpatch(model: ModelT) -> ModelT:
    """Undo `patch`; has no effect on a model that is not patched.

    Example:
        >>> from torch import nn
        >>> layer = nn.Linear(2, 2)
        >>> unpatch(layer) is layer
        True
    """
    if _STATE in model.__dict__:
        del model.__dict__[_STATE]
        model.__class__ = type(model).__bases__[0]
    return model


def patch_state(model: nn.Module) -> PatchState:
    """Return the state of a patched model, also inside wrappers.

    Raises:
        ValueError: if no module of the model is patched
    """
    for module in model.modules():
        if _STATE in module.__dict__:
            state: PatchState = module.__dict__[_STATE]
            return state
    raise ValueError("the model is not patched: call coord_losses.hf.patch(model, objective) first")


_PATCHED: dict[type[nn.Module], type[nn.Module]] = {}
"""The subclass that `patch` gives to models of each class."""


def _patched_class(own_class: type[nn.Module]) -> type[nn.Module]:
    """Return the subclass whose forward pass computes the objective; the same one for all models of a class."""
    if own_class in _PATCHED:
        return _PATCHED[own_class]

    def reduce(self: nn.Module, protocol: Any) -> tuple[Any, ...]:
        # The subclass has no name that pickle could import: it is made again from the model's own class.
        return _new_patched, (own_class,), *own_class.__reduce_ex__(self, protocol)[2:]

    members = {
        "forward": _patched_forward(own_class),
        "__reduce_ex__": reduce,
        "__module__": own_class.__module__,
        "__qualname__": own_class.__qualname__,
    }
    patched = _PATCHED[own_class] = type(own_class.__name__, (own_class,), members)
    return patched


def _new_patched(own_class: type[nn.Module]) -> nn.Module:
    patched = _patched_class(own_class)
    model: nn.Module = patched.__new__(patched)
    return model


def _router_loss(model: nn.Module, outputs: Mapping[str, Any], arguments: Mapping[str, Any]) -> Tensor | None:
    """Return the router's auxiliary loss of a mixture of experts times its coefficient; None if it is not asked for.

    Raises:
        ValueError: if it is asked for (`output_router_logits`) and the model does not return it
    """
    config: Any = getattr(model, "config", None)
    parts = [part for part in (config, getattr(config, "text_config", None)) if part is not None]
    coefficient = next((c for p in parts if (c := getattr(p, "router_aux_loss_coef", None)) is not None), None)
    aux_loss: Tensor | None = outputs.get("aux_loss")
    if aux_loss is not None and coefficient is not None:
        return aux_loss * float(coefficient)
    asked = arguments.get("output_router_logits")
    if asked is None:
        asked = any(getattr(part, "output_router_logits", False) for part in parts)
    if asked:
        raise ValueError(
            f"output_router_logits asks {type(model).__name__} for its router's auxiliary loss, but the model returns "
            "no aux_loss, or its configuration has no router_aux_loss_coef: set output_router_logits to False"
        )
    return None


def _patched_forward(own_class: type[nn.Module]) -> Callable[..., Any]:
    original: Callable[..., Any] = own_class.forward

    def forward(
        self: nn.Module,
        *args: Any,
        labels: Tensor | None = None,
        objects: ObjectSlots | None = None,
        denominators: Denominators = None,
        **kwargs: Any,
    ) -> Any:
        if labels is None:
            return original(self, *args, **kwargs)
        num_items = kwargs.pop("num_items_in_batch", None)
        state: PatchState = self.__dict__[_STATE]
        rows = RowHead(state.objective, labels, objects, state.want_diagnostics, denominators=denominators)
        if denominators is None and num_items is not None:
            denominators = rows.denominators = _of_step(num_items, len(rows.labels.targets_N), state.objective)
        with _row_head(self, state, rows) as finish:
            outputs = original(self, *args, **{**kwargs, "return_dict": True})
        output = finish(outputs.logits)
        loss = rows.total(output)
        router_loss = _router_loss(self, outputs, kwargs)
        if router_loss is not None:
            tokens = output.counts["tokens"]
            of_step = tokens if denominators is None else denominators.get("tokens", tokens)
            # A mean over the micro-batch: its part of the optimiser step's mean, weighted by tokens.
            loss = loss + (router_loss * tokens / of_step).to(loss)
        if self.training:
            state.add(output, rows.diagnostics, router_loss)
        return type(outputs)(**{**outputs, "loss": loss, "logits": None})

    signature = inspect.signature(original)
    kept = [p for p in signature.parameters.values() if p.name not in _ADDED_ARGUMENTS and p.kind is not p.VAR_KEYWORD]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _ADDED_ARGUMENTS]
    var_keyword = [p for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    # Trainers inspect the signature to find the columns that a model accepts.
    forward.__signature__ = signature.replace(parameters=[*kept, *added, *var_keyword])  # type: ignore[attr-defined]
    forward.__doc__ = original.__doc__
    return forward


def _of_step(num_items: Tensor | int, num_tokens: int, objective: CoordObjective) -> Denominators:
    """Return the denominators of a step whose supervised tokens a plain Trainer has counted; None for this batch's own.

    Raises:
        ValueError: if the step has other batches, whose coordinate tokens and objects are not known
    """
    if int(num_items) == num_tokens:
        return None
    if others := [name for name in objective.config.weights if denominator_of(name) != "tokens"]:
        raise ValueError(
            f"num_items_in_batch: expected the {num_tokens} supervised tokens of this batch, found {int(num_items)}, "
            f"those of all micro-batches and ranks of the step, but {others[0]} is divided by their "
            f"{denominator_of(others[0])}: use coord_losses.hf.CoordTrainer (or CoordTrainerMixin), or pass "
            "denominators=global_denominators(...) to the model"
        )
    return {"tokens": num_items}


@contextmanager
def _row_head(model: nn.Module, state: PatchState, rows: RowHead) -> Iterator[Callable[[Tensor], ObjectiveOutput]]:
    """Make the head of the model process supervised rows only, within this context.

    Yields:
        A function that returns the output of the objective, given the logits that the model returned.
    """
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    rows.fused = state.fused and _is_plain(head)
    if not rows.fused:
        with _given_rows(head, rows):
            yield lambda logits_1NV: rows.read(logits_1NV[0])
        return
    candidates = LogitTransform.candidates(model)
    hidden_NH = probe = torch.empty(0)

    def fuse(transform: LogitTransform) -> ObjectiveOutput:
        return rows.fuse(hidden_NH, head.weight, bias_V=head.bias, **vars(transform))

    def forward(hidden_BTH: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        nonlocal hidden_NH, probe
        hidden_NH = rows.take(hidden_BTH)
        fuse(state.after or candidates[0])
        probe = hidden_BTH.new_tensor(_PROBE)[None, None]
        return probe.clone()  # models may cap it in place

    def finish(logits: Tensor) -> ObjectiveOutput:
        output = rows.result()
        if state.after is None:
            state.after = LogitTransform.find(candidates, probe, logits)
            if state.after != candidates[0]:
                return fuse(state.after)
        return output

    with replaced_forward(head, forward):
        yield finish


@contextmanager
def _given_rows(head: nn.Module, rows: RowHead) -> Iterator[None]:
    """Give the head the supervised rows [1, N, H] alone: also its hooks, which may compute from its inputs."""

    def select(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if args:
            return (rows.take(args[0])[None], *args[1:]), kwargs
        first = next(iter(kwargs))
        return (), kwargs | {first: rows.take(kwargs[first])[None]}

    handle = head.register_forward_pre_hook(select, prepend=True, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _is_plain(head: nn.Module) -> bool:
    return type(head) is nn.Linear and not any((head._forward_hooks, head._forward_pre_hooks))
