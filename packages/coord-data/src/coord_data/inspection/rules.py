"""`InspectionRules`: how a set is read for its inspection, and what it is held against."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from coord_data.reading.rules import ReadingRules


class InspectionRules(ReadingRules):
    """How `inspect` reads a set, and what the findings compare it with; frozen.

    The options of the command, their help, and the arguments in Python are these fields.

    Example:
        >>> InspectionRules.of(ReadingRules(format="yolo"), min_side=32).min_side
        32
    """

    max_objects: Annotated[int, Field(ge=1)] = Field(30, description="largest number of objects in a target text")
    min_side: Annotated[int, Field(ge=0)] = Field(
        0, description="images with a side of fewer pixels are left out of the examination, and counted"
    )

    @classmethod
    def of(cls, rules: ReadingRules | None, **further: Any) -> InspectionRules:
        """Return rules of reading as those of an inspection; what is further given and not None replaces theirs."""
        further = {name: value for name, value in further.items() if value is not None}
        if isinstance(rules, cls) and not further:
            return rules
        stated = {} if rules is None else rules.model_dump(exclude_unset=True)
        return cls(**stated | further)
