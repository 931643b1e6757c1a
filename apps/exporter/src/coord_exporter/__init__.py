"""Merge LoRA, DoRA and coordinate offsets into a plain Hugging Face checkpoint, streamed."""

from .errors import ExportError, InputError
from .expand import ExpandReport, expand_vocab
from .merging import MergeReport, merge

__all__ = ["ExpandReport", "ExportError", "InputError", "MergeReport", "expand_vocab", "merge"]
