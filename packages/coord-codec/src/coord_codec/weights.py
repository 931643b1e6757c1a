"""A digest by which a checkpoint's weights are recognised: an adapter names its base by it, a calibration its model.

It is computed from the stored files, so that dtype, device and quantisation while training do not change it, nor how
the tensors are distributed over files. Of a large tensor it reads one part in 256, at intervals that are shorter than
the rows of the coordinate tokens: checkpoints that differ in these rows alone have other digests, and 140 GB of weights
cost half a gigabyte of reading.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from coord_codec.files import InputError, read_json

_INTERVAL, _READ = 1 << 18, 1 << 10  # bytes; shorter tensors are read whole
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


def weights_digest(folder: str | Path) -> str | None:
    """Return the digest of the safetensors weights in a checkpoint's or an adapter's folder; None if there are none.

    Raises:
        InputError: if a file is damaged

    Example:
        >>> import tempfile
        >>> header = b'{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
        >>> folders = [Path(tempfile.mkdtemp()) for _ in range(3)]
        >>> for folder, values in zip(folders, (b"aa", b"aa", b"ab")):
        ...     size = len(header).to_bytes(8, "little")
        ...     _ = (folder / "model.safetensors").write_bytes(size + header + values)
        >>> digests = [weights_digest(folder) for folder in folders]
        >>> digests[0] == digests[1], digests[0] == digests[2]
        (True, False)
    """
    index = Path(folder) / _INDEX
    names = {_SINGLE, "adapter_model.safetensors"}
    if index.is_file() and not (Path(folder) / _SINGLE).is_file():  # as transformers: a single file precedes an index
        names = set(read_json(index)["weight_map"].values())
    files = [path for name in names if (path := Path(folder) / name).is_file()]
    tensors = sorted((*tensor, path) for path in files for tensor in stored_tensors(path))
    digest = hashlib.sha256()
    for name, dtype, shape, start, end, path in tensors:
        digest.update(json.dumps([name, dtype, shape]).encode())
        with path.open("rb", buffering=0) as file:
            if end - start <= _INTERVAL:
                digest.update(os.pread(file.fileno(), end - start, start))
                continue
            for at in (*range(start, end, _INTERVAL), end - _READ):
                digest.update(os.pread(file.fileno(), min(_READ, end - at), at))
    return digest.hexdigest()[:16] if tensors else None


def stored_tensors(path: Path) -> Iterator[tuple[str, str, list[int], int, int]]:
    """Yield name, dtype, shape, first and last byte of each tensor of a safetensors file, from its header alone.

    Raises:
        InputError: the header is damaged
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                yield name, entry["dtype"], entry["shape"], 8 + length + start, 8 + length + end
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, MemoryError, OverflowError) as error:
        raise InputError(f"{path}: the safetensors header is damaged ({error}); fetch the file again") from None
