"""Maps the names of stored tensors to the names in transformers' model, which differ for some checkpoints.

Qwen2-VL, for example, stores `model.layers.0...` for the module `model.language_model.layers.0...`, the name that PEFT
uses. The mapping is transformers' own conversion mapping on a model without weights. transformers is imported only if
the base's names differ from the adapter's, or to verify.

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
    """Return the transformers class of the first architecture in a configuration."""
    import transformers

    names = config.get("architectures") or ["AutoModelForImageTextToText"]
    return getattr(transformers, names[0], transformers.AutoModelForImageTextToText)


def empty_model(base: StoredCheckpoint) -> Any:
    """Build a checkpoint's model without weights, on torch's meta device.

    Raises:
        InputError: if this version of transformers does not support the model
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    kind = model_class(base.config)
    try:
        config = transformers.AutoConfig.from_pretrained(base.folder, local_files_only=True)
        with torch.device("meta"):
            return kind.from_config(config) if "Auto" in kind.__name__ else kind(config)
    except Exception as error:  # configuration classes raise arbitrary exceptions
        reason = str(error).strip().partition("\n")[0]
        raise InputError(
            f"{base.folder / 'config.json'}: transformers {transformers.__version__} cannot build this model "
            f"({type(error).__name__}: {reason}); update transformers"
        ) from None


def named_as_modules(base: StoredCheckpoint, model: Any = None) -> StoredCheckpoint:
    """Return the checkpoint with its `tensors` under their names in transformers' model.

    Tensors that are combined in the model (such as single experts) keep their stored names.

    Args:
        base: the checkpoint
        model: its model; None builds one without weights
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    model = empty_model(base) if model is None else model
    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    state = model.state_dict()

    def name_of(stored: str) -> str:
        return rename_source_key(stored, renamings, converters, model.base_model_prefix, state)[0]

    names = {tensor.name: name_of(tensor.name) for file in base.files for tensor in file.tensors}
    counts = Counter(names.values())
    return replace(base, modules={stored: name for stored, name in names.items() if counts[name] == 1})
