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

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from coord_codec.files import InputError
from coord_exporter.checkpoint.read import StoredCheckpoint


def model_class(config: dict[str, Any]) -> Any:
    """Return the transformers class of the first architecture in a configuration."""
    import transformers

    names = config.get("architectures") or ["AutoModelForImageTextToText"]
    return getattr(transformers, names[0], transformers.AutoModelForImageTextToText)


def empty_model(base: StoredCheckpoint) -> Any:
    """Build a checkpoint's model, if transformers supports it, without weights on torch's meta device."""
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


@dataclass(frozen=True)
class ModelTables:
    """Embedding and head in transformers' model of a checkpoint.

    Attributes:
        embed: name of the embedding's weight
        head: name of the head's weight
        tied: whether both are one parameter
        modules: names in the model by stored name; see `named_as_modules`
    """

    embed: str
    head: str
    tied: bool
    modules: dict[str, str]


def tables_in_model(base: StoredCheckpoint) -> ModelTables:
    """Ask transformers for embedding and head of a checkpoint, from its configuration alone.

    Raises:
        InputError: if this version does not support the model, or the model has no embedding and head of its own
    """
    key = json.dumps(base.config, sort_keys=True)
    if key not in _ASKED:
        _ASKED[key] = _ask(base)
    return _ASKED[key]


_ASKED: dict[str, ModelTables] = {}  # by configuration: building a model takes a second


def _ask(base: StoredCheckpoint) -> ModelTables:
    model = empty_model(base)
    names = {id(module): name for name, module in model.named_modules()}
    try:
        embed, head = model.get_input_embeddings(), model.get_output_embeddings()
        model.tie_weights()
        found = names[id(embed)], names[id(head)], head.weight is embed.weight
    except (AttributeError, KeyError, NotImplementedError):
        raise InputError(
            f"{base.folder / 'config.json'}: transformers' {type(model).__name__} has no embedding and head in common "
            "with a text model, so that rows of tokens cannot be added or merged"
        ) from None
    return ModelTables(f"{found[0]}.weight", f"{found[1]}.weight", found[2], named_as_modules(base, model).modules)


def names_in_model(model: Any) -> Callable[[str], str]:
    """Return a function from the name of a stored tensor to its name in a model, as transformers loads it."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    state = model.state_dict()
    return lambda stored: rename_source_key(stored, renamings, converters, model.base_model_prefix, state)[0]


def named_as_modules(base: StoredCheckpoint, model: Any = None) -> StoredCheckpoint:
    """Return the checkpoint with its `tensors` under their names in transformers' model.

    Tensors that are combined in the model (such as single experts) keep their stored names. Without a `model`
    one without weights is built.
    """
    name_of = names_in_model(empty_model(base) if model is None else model)
    names = {tensor.name: name_of(tensor.name) for file in base.files for tensor in file.tensors}
    counts = Counter(names.values())
    return replace(base, modules={stored: name for stored, name in names.items() if counts[name] == 1})


def renamed_modules(model: Any, names: Iterable[str]) -> dict[str, str]:
    """Return the names in a model of modules that it does not have, as far as transformers renames them.

    An adapter of before transformers 4.52 names `model.layers` what is `model.language_model.layers` since then.
    """
    known, name_of = {name for name, _ in model.named_modules()}, names_in_model(model)
    renamed = {name: name_of(f"{name}.weight").removesuffix(".weight") for name in set(names) - known}
    return {old: new for old, new in renamed.items() if new in known}
