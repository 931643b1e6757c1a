"""The table of loss terms: what each needs, what it is divided by, where its weight stands, how it is logged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from torch import Tensor

Need = Literal["text_rows", "coord_rows", "gate", "coord_logits", "expectation", "box", "log_z", "margin"]
"""What a term is computed from; see `register_term`."""
Denominator = Literal["tokens", "coord_tokens", "objects"]
"""The count a term is divided by: all supervised tokens, those that are coordinates, or objects."""
_DENOMINATORS: dict[str, Denominator] = {"text_rows": "tokens", "log_z": "tokens", "margin": "tokens", "box": "objects"}
_OTHER_DENOMINATOR: Denominator = "coord_tokens"


@dataclass(frozen=True)
class Term:
    """One row of the table of loss terms, see `register_term`.

    Attributes:
        name: the key in `ObjectiveOutput.terms`
        function: takes `TermInputs` and options, returns one loss per element, undivided and unweighted
        needs: what it is computed from; the first one decides what an element is
        denominator: the count that it is divided by
        weight_field: the field of `ObjectiveConfig` that holds its weight; None for `extra_weights[name]`
        default_weight: its weight where `extra_weights` does not name it
        log_key: the name under which it is logged
        diagnostic: whether `ObjectiveOutput.diagnostics` computes it where it has no weight

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
    """Return every term by name, in the order of `ObjectiveOutput.terms`.

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
    """Add a loss term, which both forms of the objective, configuration, output and diagnostics then know.

    | needs | an element is | `TermInputs` then offers |
    |---|---|---|
    | `"text_rows"` | a text token | `text_nll_T`, its cross-entropy over the full vocabulary |
    | `"coord_rows"` | a coordinate token | `coord_nll_C`, the same of coordinate tokens |
    | `"gate"` | a coordinate token | `gate_C`, minus the log of the mass on coordinate tokens |
    | `"coord_logits"` | a coordinate token | `coord_logits_CK`, `soft_targets_CK` |
    | `"expectation"` | a coordinate token | `expected_C`, the expected coordinate |
    | `"box"` | an object | `predicted_M4`, the expected box |
    | `"log_z"` | a supervised token | `log_z_N`, logsumexp of all logits |
    | `"margin"` | a supervised token | `margin_N`, the target's logit less the mean of all |

    True values (`bins_C`, `true_C`, `true_bins_C`, `boxes_M4`) and `config` are always there. The fused form computes
    only what the terms with a weight need, and no term sees the logits of the full vocabulary.

    Args:
        name: the key in `ObjectiveConfig.extra_weights` and `ObjectiveOutput.terms`
        function: called with `TermInputs`, and with `ObjectiveConfig.term_options[name]` as keywords; returns one
            loss per element, differentiable
        needs: what it is computed from, one or several
        denominator: the count that the sum is divided by; by default tokens for text, objects for boxes, else
            coordinate tokens
        weight_field: a field of `ObjectiveConfig` that holds the weight; None for `extra_weights`
        default_weight: weight where `extra_weights` does not name it; 0 leaves the term out
        log_key: the name under which it is logged; by default its name
        diagnostic: whether diagnostics compute it where it has no weight (not for text)
        replace: whether a term of that name may be replaced

    Returns:
        The row of the table.

    Raises:
        ValueError: the name is taken, or `needs` or `denominator` is unknown

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
    wanted: tuple[Need, ...] = (needs,) if isinstance(needs, str) else tuple(needs)
    if not wanted or (unknown := [need for need in wanted if need not in get_args(Need)]):
        raise ValueError(
            f"term {name!r}: needs must be one or several of {', '.join(get_args(Need))}, got {needs!r}"
            + (f": {unknown[0]!r} is none of them" if wanted else "")
        )
    if denominator is not None and denominator not in get_args(Denominator):
        raise ValueError(
            f"term {name!r}: denominator must be one of {', '.join(get_args(Denominator))}, got {denominator!r}"
        )
    if name in _TERMS and not replace:
        raise ValueError(f"there is a term {name!r} already; choose another name, or pass replace=True to replace it")
    divided_by = denominator or _DENOMINATORS.get(wanted[0], _OTHER_DENOMINATOR)
    term = Term(name, function, wanted, divided_by, weight_field, default_weight, log_key or name, diagnostic)
    _TERMS[name] = term
    return term
