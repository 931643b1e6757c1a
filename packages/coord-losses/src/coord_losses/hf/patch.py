"""Patches a causal model of transformers to compute the objective, applying its head to supervised rows only."""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
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
_PROBE = (1e-4, 1e6, -1e6, -90.0, -12.0, -1.0, -0.25, 0.5, 3.0, 40.0)
"""Logits given in place of the head's: the first measures the scale, the second the cap, all together verify them."""


@dataclass(frozen=True)
class LogitTransform:
    """The transformation that a model applies to the logits of its head: a scale, then a cap."""

    logit_scale: float = 1.0
    softcap: float | None = None

    @classmethod
    def measure(cls, before: Tensor, after: Tensor) -> "LogitTransform | None":
        """Return what the model's own code made of the probed logits; None if it is more than a scale and a cap.

        Of y = c tanh(s x / c) a large x gives c, and a small one s. No setting is read: some models divide by what
        others multiply by, or ignore it.

        Args:
            before: `probe` [1, 1, V]
            after: what the model returned for it

        Example:
            >>> before = probe(torch.nn.Linear(8, 20))
            >>> LogitTransform.measure(before, 3.0 * torch.tanh(before * 0.25 / 3.0))
            LogitTransform(logit_scale=0.25, softcap=3.0)
        """
        digits = {torch.float64: 12, torch.float32: 7}.get(after.dtype)
        if after.shape != before.shape or digits is None:
            return None
        (x_small, x_large), (y_small, y_large) = before[0, 0, :2].tolist(), after[0, 0, :2].tolist()
        scale, cap = y_small / x_small, None
        if abs(y_small) < abs(y_large) < 0.5 * abs(scale * x_large):
            scale, cap = math.atanh(y_small / y_large) * y_large / x_small, float(f"{y_large:.{digits}g}")
        found = cls(float(f"{scale:.{digits}g}"), cap)
        expected = before.double() * found.logit_scale
        if found.softcap is not None:
            expected = found.softcap * torch.tanh(expected / found.softcap)
        return found if torch.allclose(after.double(), expected, rtol=10.0 ** (1 - digits), atol=0.0) else None


def probe(head: nn.Linear) -> Tensor:
    """Return the logits [1, 1, V] that take the place of the head's, all of them far from what a mask writes."""
    device = head.weight.device
    dtype = torch.float32 if device.type == "mps" else torch.float64
    values = torch.tensor(_PROBE, dtype=dtype, device=device)
    return values.repeat(head.out_features // len(_PROBE) + 1)[: max(head.out_features, len(_PROBE))][None, None]


@dataclass
class PatchState:
    """The objective of a patched model and the sums to be logged.

    Attributes:
        objective: the objective
        fused: whether the fused form is used if the head allows it; no longer if the model turns out to do more to its
            logits than scale and cap them
        want_diagnostics: whether the next forward passes add diagnostics
        metrics: what has been added since the last `flush`; None before the first forward pass in training
        after: the transformation of the head's logits; None before the first forward pass
        running: whether a forward pass computes the objective now
        passes: number of forward passes that computed the objective
    """

    objective: CoordObjective
    fused: bool
    want_diagnostics: bool = False
    metrics: StepMetrics | None = None
    after: LogitTransform | None = None
    running: bool = False
    passes: int = 0

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
    scale of Cohere, Granite and Falcon-H1) is measured in the first forward pass. For a head with LoRA or hooks, and
    for a model that does more to its logits (Chameleon's mask), the readable form is used with the logits of the
    supervised rows. A `forward` that others put on the model or its class, before or later (accelerate's hooks,
    kernels), is called inside. With
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
    if _own_class(type(model)) is None:
        model.__class__ = _patched_class(type(model))  # type: ignore[assignment]
    model.__dict__[_STATE] = PatchState(objective, fused)
    return model


def unpatch(model: ModelT) -> ModelT:
    """Undo `patch`; has no effect on a model that is not patched.

    Raises:
        ValueError: if the model's class was changed after `patch`, by `fully_shard` for example

    Example:
        >>> from torch import nn
        >>> layer = nn.Linear(2, 2)
        >>> unpatch(layer) is layer
        True
    """
    if _STATE in model.__dict__:
        own_class = _own_class(type(model))
        if _PATCHED.get(own_class) is not type(model):
            raise ValueError(f"the class became {type(model).__name__} after patch: unpatch the model before that")
        del model.__dict__[_STATE]
        model.__class__ = own_class  # type: ignore[assignment]
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


_PATCHED: dict[Any, type[nn.Module]] = {}
"""The subclass that `patch` gives to models of each class."""


def _own_class(kind: type[nn.Module]) -> type[nn.Module] | None:
    """Return the class that a patched class, or a subclass of one, was made of; None if it is not patched."""
    return next((own for own, patched in _PATCHED.items() if patched in kind.__mro__), None)


def _patched_class(own_class: type[nn.Module]) -> type[nn.Module]:
    """Return the subclass whose forward pass computes the objective; the same one for all models of a class."""
    if own_class in _PATCHED:
        return _PATCHED[own_class]

    def reduce(self: nn.Module, protocol: Any) -> tuple[Any, ...]:
        # The subclass has no name that pickle could import: it is made again from the model's own class.
        return _new_patched, (own_class,), *own_class.__reduce_ex__(self, protocol)[2:]

    def set_on_class(kind: Any, name: str, value: Any) -> None:
        type.__setattr__(own_class if name == "forward" else kind, name, value)

    members = {
        "forward": _ForwardAttribute(own_class),
        "__reduce_ex__": reduce,
        "__module__": own_class.__module__,
        "__qualname__": own_class.__qualname__,
    }
    meta: Any = type(type(own_class).__name__, (type(own_class),), {"__setattr__": set_on_class})
    patched: type[nn.Module] = meta(own_class.__name__, (own_class,), members)
    _PATCHED[own_class] = patched
    return patched


def _new_patched(own_class: type[nn.Module]) -> nn.Module:
    patched = _patched_class(own_class)
    model: nn.Module = patched.__new__(patched)
    return model


class _ForwardAttribute:
    """The attribute `forward` of a patched class, around the forward pass that the model or its class has by then."""

    def __init__(self, own_class: type[nn.Module]) -> None:
        self.own_class = own_class

    def __get__(self, model: nn.Module | None, kind: Any = None) -> Any:
        if model is None:
            return self.own_class.forward
        return _Forward(model, model.__dict__.get("forward") or MethodType(self.own_class.forward, model))

    def __set__(self, model: nn.Module, value: Any) -> None:
        model.__dict__["forward"] = value

    def __delete__(self, model: nn.Module) -> None:
        if "forward" not in model.__dict__:
            raise AttributeError("forward")
        del model.__dict__["forward"]


class _Forward:
    """Compute the objective around a forward pass, which others may have replaced, and may call this one again."""

    def __init__(self, model: nn.Module, inner: Callable[..., Any]) -> None:
        self.model, self.inner = model, inner

    @property
    def __signature__(self) -> inspect.Signature:
        # Trainers inspect the signature to find the columns that a model accepts.
        signature = inspect.signature(self.inner)
        parameters = signature.parameters.values()
        kept = [p for p in parameters if p.name not in _ADDED_ARGUMENTS and p.kind is not p.VAR_KEYWORD]
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _ADDED_ARGUMENTS]
        var_keyword = [p for p in parameters if p.kind is p.VAR_KEYWORD]
        return signature.replace(parameters=[*kept, *added, *var_keyword])

    def __call__(
        self,
        *args: Any,
        labels: Tensor | None = None,
        objects: ObjectSlots | None = None,
        denominators: Denominators = None,
        **kwargs: Any,
    ) -> Any:
        state: PatchState | None = self.model.__dict__.get(_STATE)
        if state is None or state.running or labels is None:
            return self.inner(*args, **kwargs) if labels is None else self.inner(*args, labels=labels, **kwargs)
        num_items = kwargs.pop("num_items_in_batch", None)
        rows = RowHead(state.objective, labels, objects, state.want_diagnostics, denominators=denominators)
        if denominators is None and num_items is not None:
            denominators = rows.denominators = _of_step(num_items, len(rows.labels.targets_N), state.objective)
        state.running = True
        try:
            outputs, output = self._run(state, rows, args, {**kwargs, "return_dict": True})
        finally:
            state.running = False
        loss = rows.total(output)
        router_loss = _router_loss(self.model, outputs, kwargs)
        if router_loss is not None:
            tokens = output.counts["tokens"]
            of_step = tokens if denominators is None else denominators.get("tokens", tokens)
            # A mean over the micro-batch: its part of the optimiser step's mean, weighted by tokens.
            loss = loss + (router_loss * tokens / of_step).to(loss)
        state.passes += 1
        if self.model.training:
            state.add(output, rows.diagnostics, router_loss)
        return type(outputs)(**{**outputs, "loss": loss, "logits": None})

    def _run(
        self, state: PatchState, rows: RowHead, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ObjectiveOutput]:
        """Return what the forward pass returns, and the output of the objective.

        Raises:
            ValueError: if the forward pass does not call the head
        """
        head: Any = self.model.get_output_embeddings()  # type: ignore[operator]
        with _row_head(head, state, rows) as finish:
            try:
                outputs = self.inner(*args, **kwargs)
            except (TypeError, AttributeError) as error:  # of code that needs labels
                if rows.targets_N is None and "forward" in self.model.__dict__:
                    raise ValueError(_goes_round(self.inner)) from error
                raise
        if rows.targets_N is None:
            raise ValueError(_goes_round(self.inner))
        output = finish(outputs["logits"])
        if output is not None:
            return outputs, output
        warnings.warn(
            f"{type(self.model).__name__} does more to its logits than scale and cap them: the objective is computed "
            "from the logits of supervised rows (fused=False), which takes more memory",
            stacklevel=4,
        )
        state.fused = False
        return self._run(state, rows, args, kwargs)


def _goes_round(forward: Any) -> str:
    """Return the message about a forward pass that computes its loss without the head."""
    function = inspect.unwrap(getattr(forward, "func", forward), stop=lambda f: hasattr(f, "__code__"))
    function = getattr(function, "__func__", function)
    module = getattr(function, "__globals__", {}).get("__name__", type(function).__module__)
    name = function.__code__.co_name if hasattr(function, "__code__") else type(function).__name__  # not of `wraps`
    return (
        f"{module}.{name} computes its loss without calling the output embeddings, and would leave the objective out: "
        "switch it off (use_liger_kernel=False; with TRL class MyTrainer(CoordTrainerMixin, SFTTrainer)), or patch a "
        "model without it"
    )


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
def _row_head(head: Any, state: PatchState, rows: RowHead) -> Iterator[Callable[[Tensor], ObjectiveOutput | None]]:
    """Make the head of the model process supervised rows only, within this context.

    Yields:
        A function that returns the output of the objective, given the logits that the model returned; None if the
        fused form would ignore what the model does to them.
    """
    rows.fused = state.fused and _is_plain(head)
    if not rows.fused:
        with _given_rows(head, rows):
            yield lambda logits_1NV: rows.read(logits_1NV[0])
        return
    hidden_NH = probed = torch.empty(0)

    def forward(hidden_BTH: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        nonlocal hidden_NH, probed
        hidden_NH, probed = rows.take(hidden_BTH), probe(head)
        return probed.clone()  # models may cap it in place

    def finish(logits: Tensor) -> ObjectiveOutput | None:
        if state.after is None:
            state.after = LogitTransform.measure(probed, logits)
        if state.after is None:
            return None
        return rows.fuse(hidden_NH, head.weight, bias_V=head.bias, **vars(state.after))

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
    replaced = "forward" in head.__dict__  # by accelerate, for example, which moves weights there
    return type(head) is nn.Linear and not any((head._forward_hooks, head._forward_pre_hooks, replaced))
