"""Make plain PEFT refuse an adapter with offsets on a base model that was not prepared for it.

PEFT restores `modules_to_save` only where the module exists and drops the tensors without a word where it
does not. `trainable_token_indices` is the one entry of an adapter's configuration that PEFT treats as
binding: a name it cannot find is a `ValueError`. So adapters with offsets name `OffsetGuard` there. On a
prepared base the name resolves to a wrapper that already is of the class PEFT looks for; PEFT then asks it to
register the adapter instead of creating trainable tokens. Nothing is created: no parameter that DDP would
wait for, no tensor in the checkpoint.
"""

from typing import Any

from peft import PeftConfig
from peft.utils.other import TrainableTokensWrapper
from torch import nn

GUARD_NAME = "coord_offset_guard"
GUARD_ENTRY = {GUARD_NAME: [0]}


class OffsetGuard(TrainableTokensWrapper):
    """An empty stand-in that answers PEFT's bookkeeping and holds nothing."""

    adapter_layer_names: tuple[str, ...] = ()
    other_param_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        # Not the parent's: it would wrap an embedding and create parameters.
        nn.Module.__init__(self)
        self._active_adapter: list[str] = []
        self._disable_adapters = False
        self._adapters: set[str] = set()

    @property
    def original_module(self) -> nn.Module:
        """There is no module behind the guard; itself is what unloading leaves in place."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Plain lookup: nothing is delegated."""
        return nn.Module.__getattr__(self, name)

    def update(self, active_adapter: str, **kwargs: Any) -> None:
        """Register an adapter."""
        self._adapters.add(active_adapter)

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        """Follow the active adapter."""
        self._active_adapter = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)

    def enable_adapters(self, enabled: bool) -> None:
        """Follow the model's switch."""
        self._disable_adapters = not enabled

    def check_set_adapter(self, adapter_name: str | list[str]) -> str | None:
        """Name the adapter of the list that is registered here, if any."""
        names = [adapter_name] if isinstance(adapter_name, str) else adapter_name
        return next((name for name in names if name in self._adapters), None)

    def delete_adapter(self, adapter_name: str, new_active_adapters: list[str] | None) -> None:
        """Forget an adapter."""
        self._adapters.discard(adapter_name)
        self._active_adapter = [name for name in new_active_adapters or [] if name in self._adapters]

    def adapter_state_dict(self, adapter_name: str, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Nothing is saved."""
        return {}

    def adapter_state_dict_load_map(self, adapter_name: str) -> dict[str, str]:
        """Nothing is loaded."""
        return {}

    def unload_and_optionally_merge_module(
        self, merge: bool, safe_merge: bool, adapter_names: list[str] | None
    ) -> nn.Module:
        """Stay in place; `bake_offsets` takes the guard away."""
        return self

    def _get_available_adapters(self) -> set[str]:
        return set(self._adapters)


def is_guarded(config: PeftConfig) -> bool:
    """Whether an adapter's configuration names the guard."""
    indices = getattr(config, "trainable_token_indices", None)
    return isinstance(indices, dict) and GUARD_NAME in indices


def add_guard(config: PeftConfig) -> None:
    """Name the guard in an adapter's configuration (in place), so that it is saved with the adapter.

    PEFT methods without `trainable_token_indices` have nothing to bind to and stay as they are.
    """
    if hasattr(config, "trainable_token_indices") and not is_guarded(config):
        config.trainable_token_indices = {**(config.trainable_token_indices or {}), **GUARD_ENTRY}
