"""Imports the files and modules in which users register rows of their own: geometries, formats, loss terms, metrics."""

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from coord_codec.files import InputError


def plugin_digests(names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each imported plugin's source, for the manifest."""
    files = {name: Path(str(sys.modules[_module(name)].__file__)) for name in names}
    return {name: sha256(file.read_bytes()).hexdigest() for name, file in files.items()}


def import_plugins(names: Iterable[str], key: str = "--plugin") -> None:
    """Import each plugin once; it runs the user's own code, which registers rows of the tables.

    Names are paths ending in `.py`, relative to the working folder, or dotted names of installed modules.

    Raises:
        InputError: a plugin does not exist, or importing it raises an error.
    """
    for name in names:
        module_name = _module(name)
        file = Path(name).resolve() if name.endswith(".py") else None
        if module_name in sys.modules:
            continue
        if file is not None and not file.is_file():
            raise InputError(f"{key}: {name}: no such file; give a path from the working folder")
        try:
            if file is None:
                importlib.import_module(name)
                continue
            spec = importlib.util.spec_from_file_location(module_name, file)
            assert spec is not None and spec.loader is not None
            sys.modules[module_name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[module_name])
        except Exception as error:
            sys.modules.pop(module_name, None)
            raise InputError(f"{key}: {name}: importing it raises {type(error).__name__}: {error}") from error


def _module(name: str) -> str:
    """Return the module name of a plugin: its own, or one derived from the path of its file."""
    return (
        f"coord_plugin_{sha256(str(Path(name).resolve()).encode()).hexdigest()[:12]}" if name.endswith(".py") else name
    )
