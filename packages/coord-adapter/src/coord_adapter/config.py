"""Settings of the offsets, the `custom.coord_offset` section of a run's configuration."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator


class IdRange(BaseModel):
    """Token ids from `start` to `end`, both included.

    Example:
        >>> CoordOffsetConfig(ids=IdRange(start=7, end=9)).token_ids([])
        [7, 8, 9]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: NonNegativeInt
    end: NonNegativeInt

    @model_validator(mode="after")
    def _in_order(self) -> "IdRange":
        if self.end < self.start:
            raise ValueError(f"ids end ({self.end}) lies before start ({self.start}); both ends are included")
        return self


class CoordOffsetConfig(BaseModel):
    """Whether and how the coordinate rows are trained.

    Attributes:
        enabled: whether offsets are trained; if false, no parameters are created
        ids: token ids of the rows to train: None for the tokenizer's 1,000 coordinates and, with `data.markers: obj`,
            the two markers (1,002 rows), a list, or a range including both ends
        allow_wildcard: whether `ids` may contain the wildcard `<|coord_*|>`, which is no coordinate
        tie_head: whether embedding and head share one table; if false, two tables are trained
        embed_lr: learning rate of the embedding's table, or of the shared table; None for the run's learning rate
        head_lr: learning rate of the head's table; None for the run's learning rate
        weight_decay: weight decay of the offsets, which moves the rows towards those of the base
        dtype: dtype of the tables; see `install_coord_offset_adapter`
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    enabled: bool = False
    ids: IdRange | Annotated[list[NonNegativeInt], Field(min_length=1)] | None = None
    allow_wildcard: bool = False
    tie_head: bool = True
    embed_lr: PositiveFloat | None = None
    head_lr: PositiveFloat | None = None
    weight_decay: NonNegativeFloat = 0.0
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"

    @model_validator(mode="after")
    def _no_repeats(self) -> "CoordOffsetConfig":
        if isinstance(self.ids, list) and len(set(self.ids)) < len(self.ids):
            raise ValueError("ids repeat a token id; each id has one row")
        return self

    def token_ids(self, coord_ids: Iterable[int]) -> list[int]:
        """Return the ids to train.

        Args:
            coord_ids: the tokenizer's coordinates (and markers trained with them), used if `ids` is None
        """
        if self.ids is None:
            return list(coord_ids)
        return list(range(self.ids.start, self.ids.end + 1)) if isinstance(self.ids, IdRange) else list(self.ids)
