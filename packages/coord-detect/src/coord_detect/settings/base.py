"""The base class of all sections of a configuration, and types that several sections share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, field_validator

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Probability = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A frozen section that refuses unknown keys and numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_truth_value_as_number(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        checked = check(value)
        if isinstance(value, bool) and not isinstance(checked, bool):  # pydantic reads true as 1
            raise ValueError("expected a number")
        return checked
