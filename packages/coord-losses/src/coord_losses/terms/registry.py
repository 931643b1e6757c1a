"""The registry of loss terms: one row says what a term needs, how it is weighted, divided, logged and shown."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from torch import Tensor

from coord_codec.registry import Registry
from coord_losses.terms.weights import TermWeights

Need = Literal["text_rows", "coord_rows", "gate", "coord_logits", "expectation", "box", "margin"]
"""An input that a term is computed from; see `register_term`."""
Denominator = Literal["tokens", "coord_tokens", "objects"]
"""The count that a term is divided by: all supervised tokens, coordinate tokens, or objects."""
Element = Literal["text token", "token", "coordinate", "object"]
"""What a term has one value for."""


class _Input(NamedTuple):
    element: Element
    denominator: Denominator


INPUTS: Mapping[Need, _Input] = {
    "text_rows": _Input("text token", "tokens"),
    "margin": _Input("token", "tokens"),
    "coord_rows": _Input("coordinate", "coord_tokens"),
    "gate": _Input("coordinate", "coord_tokens"),
    "coord_logits": _Input("coordinate", "coord_tokens"),
    "expectation": _Input("coordinate", "coord_tokens"),
    "box": _Input("object", "objects"),
}
"""What a term whose first need is this one has values for, and what it is divided by unless it says otherwise."""


@dataclass(frozen=True)
class Term:
    """A row of the registry, see `register_term`.

    Attributes:
        name: key in `ObjectiveOutput.terms`
        function: takes `TermInputs` and options, returns one loss per element, undivided and unweighted
        needs: the inputs it is computed from; the first one determines the elements
        denominator: the count that it is divided by
        weight_field: the field of `ObjectiveConfig` with its weight; None for `extra_weights[name]`
        default_weight: its weight if `extra_weights` does not contain it
        log_key: the name under which it is logged
        diagnostic: whether `ObjectiveOutput.diagnostics` computes it even without a weight
        trainable: whether it may have a weight; False for a quantity that is only measured
        loss_key: the name under which a trainer logs its weighted value; None if it is part of the sum of the others
        linear: whether it is linear in the cross-entropies or the gate that it needs
        title: its name in charts and tables
        unit: unit of its values, empty for none
        formula: its definition
        source: where it was published

    Example:
        >>> gate = registered_terms()["gate"]
        >>> gate.denominator, gate.element, gate.title, gate.unit
        ('coord_tokens', 'coordinate', 'gate', 'nats')
    """

    name: str
    function: Callable[..., Tensor]
    needs: tuple[Need, ...]
    denominator: Denominator
    weight_field: str | None
    default_weight: float
    log_key: str
    diagnostic: bool
    trainable: bool
    loss_key: str | None
    linear: bool
    title: str
    unit: str
    formula: str
    source: str

    @property
    def element(self) -> Element:
        """What the term has one value for."""
        return INPUTS[self.needs[0]].element


_TERMS: Registry[Term] = Registry("term")


def registered_terms() -> Mapping[str, Term]:
    """Return all terms by name, in the order of `ObjectiveOutput.terms`; quantities that are only measured as well.

    Example:
        >>> [name for name, term in registered_terms().items() if term.trainable][:6]
        ['text_ce', 'coord_ce', 'soft_ce', 'w1', 'gate', 'box']
    """
    return MappingProxyType(_TERMS)


def register_term(
    name: str,
    function: Callable[..., Tensor],
    *,
    needs: Need | tuple[Need, ...],
    denominator: Denominator | None = None,
    weight_field: str | None = None,
    default_weight: float = 0.0,
    log_key: str | None = None,
    diagnostic: bool = False,
    replace: bool = False,
    trainable: bool = True,
    loss_key: str | None = None,
    linear: bool = False,
    title: str | None = None,
    unit: str = "",
    formula: str | None = None,
    source: str = "",
) -> Term:
    """Register a loss term: this one row is all that configuration, both forms, output, logs and charts need.

    | needs | an element is | available in `TermInputs` |
    |---|---|---|
    | `"text_rows"` | a text token | `text_nll_T`, its cross-entropy over the full vocabulary |
    | `"coord_rows"` | a coordinate token | `coord_nll_C`, its cross-entropy over the full vocabulary |
    | `"gate"` | a coordinate token | `gate_C`, the negative log probability of all coordinate tokens |
    | `"coord_logits"` | a coordinate token | `coord_logits_CK`, `soft_targets_CK` |
    | `"expectation"` | a coordinate token | `expected_C`, the expected coordinate |
    | `"box"` | an object | `predicted_M4`, the expected box |
    | `"margin"` | a supervised token | `margin_N`, the target logit minus the mean of all logits |

    Ground truth (`bins_C`, `true_C`, `true_bins_C`, `boxes_M4`) and `config` are always available. The fused form
    computes only the inputs of terms with a weight; the logits of the full vocabulary are never available.

    Args:
        name: key in `ObjectiveConfig.extra_weights` and `ObjectiveOutput.terms`
        function: called with `TermInputs`, and with `ObjectiveConfig.term_options[name]` as keyword arguments; returns
            one differentiable loss per element
        needs: one or several inputs that it is computed from
        denominator: the count that the sum is divided by; by default tokens for text, objects for boxes, else
            coordinate tokens
        weight_field: the field of `ObjectiveConfig` with the weight; None for `extra_weights`
        default_weight: weight if `extra_weights` does not contain it; 0 leaves the term out
        log_key: the name under which it is logged; by default its name
        diagnostic: whether diagnostics compute it even without a weight (not if it needs text tokens, `"text_rows"`
            or `"margin"`)
        replace: whether an existing term of that name may be replaced
        trainable: False for a quantity that is only measured and may have no weight
        loss_key: the name under which a trainer logs the weighted term; None adds it to the sum of all others
        linear: True if the term is linear in the cross-entropies and gates that it needs: a trained head then computes
            its logits once if the denominators are known. A wrong True costs time, not exactness
        title: its name in charts and tables; by default the name
        unit: unit of its values, such as "nats"
        formula: its definition; by default the first line of the function's docstring
        source: where it was published

    Returns:
        The registered term.

    Raises:
        ValueError: if the name is already used, `needs` or `denominator` is unknown, `weight_field` is no field of
            `ObjectiveConfig`, or a term that is not trainable has a weight

    Example:
        >>> import torch
        >>> from coord_codec import CoordGrid, CoordVocab
        >>> from coord_losses import CoordObjective, ObjectiveConfig
        >>> def focal(inputs, gamma=2.0):
        ...     "(1 - p)^gamma times the cross-entropy of each coordinate token."
        ...     nll_C = inputs.coord_nll_C
        ...     return (1 - torch.exp(-nll_C)) ** gamma * nll_C
        >>> term = register_term(
        ...     "focal", focal, needs="coord_rows", unit="nats", source="Lin et al., ICCV 2017", replace=True
        ... )
        >>> config = ObjectiveConfig(extra_weights={"focal": 0.5}, term_options={"focal": {"gamma": 1.0}})
        >>> objective = CoordObjective(config, CoordVocab(6, CoordGrid(bins=4, scale=4)))
        >>> objective(torch.zeros(2, 10), torch.tensor([7, 1])).terms["focal"]  # 0.9 · log 10
        LossTerm(sum=tensor(2.0723), count=tensor(1))
    """
    need_names: tuple[Need, ...] = (needs,) if isinstance(needs, str) else tuple(needs)
    if not need_names or (unknown := [need for need in need_names if need not in get_args(Need)]):
        raise ValueError(
            f"term {name!r}: needs must be one or several of {', '.join(get_args(Need))}, got {needs!r}"
            + (f": {unknown[0]!r} is none of them" if need_names else "")
        )
    if denominator is not None and denominator not in get_args(Denominator):
        raise ValueError(
            f"term {name!r}: denominator must be one of {', '.join(get_args(Denominator))}, got {denominator!r}"
        )
    if weight_field is not None and weight_field not in TermWeights.model_fields:
        raise ValueError(
            f"term {name!r}: weight_field must be one of {', '.join(TermWeights.model_fields)}, got {weight_field!r}; "
            f"leave it out, and the weight is ObjectiveConfig.extra_weights[{name!r}]"
        )
    if not trainable and (weight_field or default_weight):
        raise ValueError(
            f"term {name!r} is only measured and can have no weight: leave out weight_field, default_weight"
        )
    term = Term(
        name=name,
        function=function,
        needs=need_names,
        denominator=denominator or INPUTS[need_names[0]].denominator,
        weight_field=weight_field,
        default_weight=default_weight,
        log_key=log_key or name,
        diagnostic=diagnostic,
        trainable=trainable,
        loss_key=loss_key,
        linear=linear,
        title=title or name,
        unit=unit,
        formula=_first_line(function) if formula is None else formula,
        source=source,
    )
    return _TERMS.add(name, term, replace=replace)


def _first_line(function: Callable[..., Tensor]) -> str:
    documented = inspect.getdoc(function) if inspect.isfunction(function) else None
    return documented.splitlines()[0] if documented else ""
