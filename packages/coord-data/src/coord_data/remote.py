"""Files and folders at addresses (`s3://`, `gs://`, `hf://`, `https://`) and images in archives, as local files.

What a user names is copied into `$XDG_CACHE_HOME/coordexp` (`~/.cache/coordexp`), and not again unless it has changed.
Nothing else is ever fetched: a path in an annotation file that is an address is not.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote

from tqdm import tqdm

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.files import path_inside, read_json, write_text
from coord_data.looking.image_paths import IMAGE_SUFFIXES
from coord_data.sources.which_field import photograph

_LOG = logging.getLogger(__name__)
_AT_ONCE = 16
"""Number of files that are copied at the same time."""
_STATE = ".coordexp.json"
_TAGS = ("ETag", "etag", "Last-Modified", "mtime", "LastModified", "last_modified", "created", "blob_id")
"""What file systems call that which changes with a file."""


def local_path(named: str | os.PathLike[str]) -> Path:
    """Return the path of what a user named: a path as it is, or the copy of what lies at an address.

    Args:
        named: a path, or the address of a file or folder on a file system that fsspec knows

    Raises:
        InputError: there is nothing at the address, it cannot be read, or its file system is not installed.

    Example:
        >>> local_path("photos").name
        'photos'
    """
    address = os.fspath(named)
    if "://" not in address:
        return Path(named)
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError:
        message = f'{address}: addresses need fsspec; install the extra: pip install "coord-data[remote]"'
        raise InputError(message) from None
    try:
        system, path = fsspec.core.url_to_fs(address)
        return _copied(system, path, address)
    except ImportError as error:
        raise InputError(f"{address}: its file system is not installed ({error})") from None
    except FileNotFoundError:
        raise InputError(f"{address}: expected a file or folder, found nothing; check the address") from None
    except InputError:
        raise
    except Exception as error:  # what clients raise: of networks, permissions, unknown protocols
        raise InputError(f"{address}: cannot be read ({str(error)[:200] or type(error).__name__})") from error


def image_folder(named: str | os.PathLike[str]) -> Path:
    """Return a folder of images: `local_path`, with a tar or Parquet file (or the files of a pattern) unpacked.

    Of a tar, as WebDataset has them, the image files are unpacked; of a Parquet file the column of encoded images, as
    Hugging Face's data sets have it: by their path, or as ROW.SUFFIX.

    Raises:
        InputError: a file cannot be read, has no images, or several images have one name.
    """
    text = os.fspath(named)
    if "*" in text and "://" not in text:
        files = sorted(Path(text).parent.glob(Path(text).name))
        if not files:
            raise InputError(f"{text}: expected files of this pattern, found none")
    else:
        files = [local_path(named)]
    if not all(file.suffix in (".tar", ".parquet") and file.is_file() for file in files):
        return files[0]
    stamps = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    folder = cache_folder("unpacked", json.dumps(stamps))
    if not (folder / _STATE).is_file():
        taken = set[str]()
        for name, content in tqdm(_all_images(files), f"unpacking {text}", unit="img", leave=False, disable=None):
            place = place_inside(folder, name)
            if str(place) in taken:
                raise InputError(
                    f"{text}: expected images of different names, found several {name}: which one annotations mean "
                    "is not known; unpack each file into a folder of its own, or give the files as annotations"
                )
            taken.add(str(place))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        if not taken:
            raise InputError(f"{text}: expected images, found none")
        write_text(folder / _STATE, json.dumps({"images": len(taken)}))
        _LOG.info(f"{text}: {counted(len(taken), 'image')} unpacked into {folder}")
    return folder


def _all_images(files: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the images of archives."""
    rows = 0
    for file in files:
        try:
            if file.suffix == ".tar":
                yield from _in_tar(file)
                continue
            for name, content in _in_parquet(file):
                yield name or f"{rows:07d}{suffix_of(content)}", content
                rows += 1
        except (OSError, ValueError, tarfile.TarError) as error:
            raise InputError(f"{file}: cannot be read ({error})") from None


def _in_tar(file: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(file, "r:") as archive:
        for member in archive:
            if member.isfile() and PurePosixPath(member.name).suffix.lower() in IMAGE_SUFFIXES:
                stream = archive.extractfile(member)
                assert stream is not None  # it is a file
                yield member.name, stream.read()


def _in_parquet(file: Path) -> Iterator[tuple[str | None, bytes]]:
    import pyarrow as pa
    import pyarrow.parquet

    with pa.parquet.ParquetFile(file) as table:
        encoded = [field.name for field in table.schema_arrow if has_bytes(field.type)]
        if (column := photograph(encoded, {}, str(file))) is None:
            raise InputError(f"{file}: expected a column of encoded images, found {table.schema_arrow.names}")
        for batch in table.iter_batches(64, columns=[column]):
            for value in batch.column(0).to_pylist():
                name = value.get("path") if isinstance(value, dict) else None
                content = value["bytes"] if isinstance(value, dict) else value
                if content is not None:
                    yield name, content


def has_bytes(type: Any) -> bool:
    """Return whether an Arrow type can hold encoded images: bytes, or a structure with them."""
    import pyarrow as pa

    if pa.types.is_struct(type):
        return bool(type.get_field_index("bytes") >= 0)
    return bool(pa.types.is_binary(type) or pa.types.is_large_binary(type))


def suffix_of(content: bytes) -> str:
    """Return the suffix of an encoded image by its format."""
    from PIL import Image

    try:
        with Image.open(BytesIO(content)) as image:
            return f".{(image.format or 'png').lower()}".replace(".jpeg", ".jpg")
    except OSError:  # the look at the image reports it
        return ".png"


def cache_folder(kind: str, key: str) -> Path:
    """Return a folder of the cache, which is created."""
    top = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = top / "coordexp" / kind / hashlib.sha256(key.encode()).hexdigest()[:24]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created ({error.strerror}); set XDG_CACHE_HOME") from None
    return folder


def place_inside(folder: Path, name: str) -> Path:
    """Return the place of a file in a folder."""
    path_inside(folder, folder / name)
    return folder / name


def _copied(system: Any, path: str, address: str) -> Path:
    """Return the copy of a file or folder, with the files that are there now; those that have not changed stay.

    fsspec's own `filecache` keeps no folders, nothing of what was withdrawn, and takes a file of the web for the same
    for ever: its key there is that of the address alone.
    """
    is_web = address.startswith(("http://", "https://"))
    written = unquote if is_web else str  # listings of the web have escaped names
    last = written(PurePosixPath(path.rstrip("/")).name)
    is_folder = ("." not in last or path.endswith("/")) if is_web else system.isdir(path)
    if is_folder:
        found = system.find(path, detail=True)
        if is_web:  # whose listings tell nothing that changes with a file
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                found = dict(zip(found, pool.map(system.info, found), strict=True))
        top = path.rstrip("/") + "/"
        files = {written(name.partition(top)[2] or name.lstrip("/")): info for name, info in found.items()}
    else:
        files = {last: system.info(path)}
    if not files:
        raise FileNotFoundError(address)
    folder = cache_folder("remote", address)
    known = read_json(folder / _STATE) if (folder / _STATE).is_file() else {}
    tags = {name: [info.get("size"), *(str(info[key]) for key in _TAGS if key in info)] for name, info in files.items()}
    withdrawn = [place_inside(folder, name) for name in known.keys() - tags.keys()]
    for place in withdrawn:
        place.unlink(missing_ok=True)

    def is_current(name: str) -> bool:
        """Return whether the copy is the file; without anything that changes with a file it is copied again."""
        return place_inside(folder, name).is_file() and len(tags[name]) > 1 and known.get(name) == tags[name]

    changed = [name for name in files if not is_current(name)]
    copy = partial(_copy, system=system, folder=folder)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        copies = pool.map(copy, changed, [files[name]["name"] for name in changed])
        for _ in tqdm(copies, f"copying {address}", len(changed), unit="file", leave=False, disable=None):
            pass
    write_text(folder / _STATE, json.dumps(tags, default=str))
    if withdrawn:
        _LOG.info(f"{address}: {counted(len(withdrawn), 'file')} no longer there, removed from {folder}")
    if changed:
        _LOG.info(f"{address}: {counted(len(changed), 'file')} copied into {folder}")
    return folder if is_folder else folder / last


def _copy(name: str, path: str, system: Any, folder: Path) -> None:
    """Copy a file, which appears complete or not at all."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    partial_file = place.with_name(f".{place.name[:64]}.{os.getpid()}.tmp")
    source: IO[bytes]
    with system.open(path, "rb") as source, partial_file.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    partial_file.replace(place)
