"""The registry of loss terms: the inputs, denominator, weight and log key of each term."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from torch import Tensor

Need = Literal["text_rows", "coord_rows", "gate", "coord_logits", "expectation", "box", "log_z", "margin"]
"""An input that a term is computed from; see `register_term`."""
Denominator = Literal["tokens", "coord_tokens", "objects"]
"""The count that a term is divided by: all supervised tokens, coordinate tokens, or objects."""
_DENOMINATORS: dict[str, Denominator] = {"text_rows": "tokens", "log_z": "tokens", "margin": "tokens", "box": "objects"}
_OTHER_DENOMINATOR: Denominator = "coord_tokens"


@dataclass(frozen=True)
class Term:
    """A registered loss term, see `register_term`.

    Attributes:
        name: key in `ObjectiveOutput.terms`
        function: takes `TermInputs` and options, returns one loss per element, undivided and unweighted
        needs: the inputs it is computed from; the first one determines the elements
        denominator: the count that it is divided by
        weight_field: the field of `ObjectiveConfig` with its weight; None for `extra_weights[name]`
        default_weight: its weight if `extra_weights` does not contain it
        log_key: the name under which it is logged
        diagnostic: whether `ObjectiveOutput.diagnostics` computes it even without a weight

    Example:
        >>> registered_terms()["gate"].denominator
        'coord_tokens'
    """

    name: str
    function: Callable[..., Tensor]
    needs: tuple[Need, ...]
    denominator: Denominator
    weight_field: str | None
    default_weight: float
    log_key: str
    diagnostic: bool


_TERMS: dict[str, Term] = {}


def registered_terms() -> Mapping[str, Term]:
    """Return all terms by name, in the order of `ObjectiveOutput.terms`.

    Example:
        >>> list(registered_terms())[:6]
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
) -> Term:
    """Register a loss term for both forms of the objective, the configuration, the output and diagnostics.

    | needs | an element is | available in `TermInputs` |
    |---|---|---|
    | `"text_rows"` | a text token | `text_nll_T`, its cross-entropy over the full vocabulary |
    | `"coord_rows"` | a coordinate token | `coord_nll_C`, its cross-entropy over the full vocabulary |
    | `"gate"` | a coordinate token | `gate_C`, the negative log probability of all coordinate tokens |
    | `"coord_logits"` | a coordinate token | `coord_logits_CK`, `soft_targets_CK` |
    | `"expectation"` | a coordinate token | `expected_C`, the expected coordinate |
    | `"box"` | an object | `predicted_M4`, the expected box |
    | `"log_z"` | a supervised token | `log_z_N`, logsumexp of all logits |
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
        diagnostic: whether diagnostics compute it even without a weight (not if it needs text tokens, `"text_rows"`,
            `"log_z"` or `"margin"`)
        replace: whether an existing term of that name may be replaced

    Returns:
        The registered term.

    Raises:
        ValueError: if the name is already used, or `needs` or `denominator` is unknown

    Example:
        >>> import torch
        >>> from coord_codec import CoordGrid, CoordVocab
        >>> from coord_losses import CoordObjective, ObjectiveConfig
        >>> def focal(inputs, gamma=2.0):  # of coordinate tokens (Lin et al., ICCV 2017)
        ...     nll_C = inputs.coord_nll_C
        ...     return (1 - torch.exp(-nll_C)) ** gamma * nll_C
        >>> term = register_term("focal", focal, needs="coord_rows", replace=True)
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
    if name in _TERMS and not replace:
        raise ValueError(f"there is a term {name!r} already; choose another name, or pass replace=True to replace it")
    count_name = denominator or _DENOMINATORS.get(need_names[0], _OTHER_DENOMINATOR)
    term = Term(name, function, need_names, count_name, weight_field, default_weight, log_key or name, diagnostic)
    _TERMS[name] = term
    return term
