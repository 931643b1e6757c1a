"""Which module of the model each stored tensor belongs to: checkpoints and transformers name some of them differently.

Qwen2-VL, for one, stores `model.layers.0...` for the module `model.language_model.layers.0...`, which is the name
that PEFT writes. The names come from transformers' own conversion mapping, on a model without weights; it is imported
here alone, and only for bases whose names differ from an adapter's, or to verify.

| name that transformers does not document   | why                                       |
|--------------------------------------------|-------------------------------------------|
| `conversion_mapping`                       |                                           |
| - `get_model_conversion_mapping`           | how a model's tensors are renamed         |
| `core_model_loading`                       |                                           |
| - `rename_source_key`, `WeightRenaming`,   | applies it to a stored name               |
|   `WeightConverter`                        |                                           |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from coord_codec.files import InputError
from coord_exporter.checkpoint.read import StoredCheckpoint


def model_class(config: dict) -> Any:
    """Return the class of transformers that a configuration names first."""
    import transformers

    names = config.get("architectures") or ["AutoModelForImageTextToText"]
    return getattr(transformers, names[0], transformers.AutoModelForImageTextToText)


def empty_model(base: StoredCheckpoint) -> Any:
    """Build a checkpoint's model without weights, on torch's meta device.

    Raises:
        InputError: if this version of transformers does not know it.
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    kind = model_class(base.config)
    try:
        config = transformers.AutoConfig.from_pretrained(base.folder, local_files_only=True)
        with torch.device("meta"):
            return kind.from_config(config) if "Auto" in kind.__name__ else kind(config)
    except Exception as error:  # configuration classes raise whatever they like
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{base.folder / 'config.json'}: transformers {transformers.__version__} cannot build this model "
            f"({type(error).__name__}: {reason}); update transformers"
        ) from None


def named_as_modules(base: StoredCheckpoint, model: Any = None) -> StoredCheckpoint:
    """Return a checkpoint whose `tensors` are listed under the names that transformers gives them once loaded.

    Tensors that become one in the model (experts stored one by one) keep their stored names.

    Args:
        base: the checkpoint
        model: its model, built here if it is not at hand
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    model = empty_model(base) if model is None else model
    found = get_model_conversion_mapping(model)
    renamings = [entry for entry in found if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in found if isinstance(entry, WeightConverter)]
    state = model.state_dict()

    def name_of(stored: str) -> str:
        return rename_source_key(stored, renamings, converters, model.base_model_prefix, state)[0]

    names = {tensor.name: name_of(tensor.name) for file in base.files for tensor in file.tensors}
    times = Counter(names.values())
    return replace(base, modules={stored: name for stored, name in names.items() if times[name] == 1})
