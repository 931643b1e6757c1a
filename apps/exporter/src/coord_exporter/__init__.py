"""Merges LoRA, DoRA and coordinate offsets into a plain Hugging Face checkpoint, streaming the tensors."""

from coord_codec.files import InputError
from coord_exporter.checkpoint.staging import ExportError
from coord_exporter.convert import ConvertReport, from_peft, to_peft
from coord_exporter.expand import ExpandReport, expand_vocab
from coord_exporter.merge import MergeReport, merge

__all__ = [
    "ConvertReport",
    "ExpandReport",
    "ExportError",
    "InputError",
    "MergeReport",
    "expand_vocab",
    "from_peft",
    "merge",
    "to_peft",
]
