"""The fields of the configuration that hold the weight of a loss term."""

from typing import Annotated

from pydantic import BaseModel, Field

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TermWeights(BaseModel):
    """Weights that have a field of their own in `ObjectiveConfig`; `register_term(weight_field=...)` names one.

    Attributes:
        text_weight: weight of the cross-entropy of text tokens (full vocabulary, no temperature)
        coord_ce_weight: weight of the cross-entropy of coordinate tokens (full vocabulary, no temperature)
        soft_ce_weight: weight of the soft cross-entropy over the coordinate tokens
        w1_weight: weight of Wasserstein-1 over the coordinate tokens
        gate_weight: weight of the vocabulary gate at coordinate positions
        box_weight: weight of the box loss on expected coordinates; for other shapes than boxes four times their mean L1
    """

    text_weight: Weight = 1.0
    coord_ce_weight: Weight = 0.0
    soft_ce_weight: Weight = 0.0
    w1_weight: Weight = 0.0
    gate_weight: Weight = 0.0
    box_weight: Weight = 0.0
