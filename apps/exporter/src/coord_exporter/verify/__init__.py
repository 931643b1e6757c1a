"""Verifies an export against PEFT's merge of base and adapter."""

from collections.abc import Iterator
from contextlib import contextmanager

from coord_exporter.checkpoint.staging import ExportError


@contextmanager
def comparing() -> Iterator[None]:
    """Turn exceptions of loaders, processors and model code into one sentence."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ExportError(
            f"verify: the models could not be compared ({type(error).__name__}: {reason}); nothing was written. "
            "--no-verify exports without comparing"
        ) from error
