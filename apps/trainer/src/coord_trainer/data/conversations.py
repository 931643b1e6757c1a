"""Conversations of text and any number of images in ms-swift's JSONL, which keep a fine-tuned model talking.

A record is `{"messages": [{"role": "user", "content": "<image>..."}, ...], "images": ["a.jpg"]}`. swift's own template
encodes it, so that its loss is swift's; it has no boxes, and joins the text term alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from coord_codec import InputError, Problem
from coord_codec.files import parse_json_line, path_inside
from coord_codec.vocab import find_control_token
from coord_eval import ImageError, decode_image, image_facts
from coord_trainer.console import RunError
from coord_trainer.data.formats.swift import as_list

ROLES = ("system", "user", "assistant")
_TAG = "<image>"
_OTHER_MEDIA = ("videos", "audios", "tools")
_MESSAGE_BYTES = 32
"""More tokens than a template puts around a message."""


@dataclass(frozen=True)
class Conversations:
    """The usable records of a file: where each begins. The file itself is read again, record by record.

    Attributes:
        name: of the source
        path: the file
        root: folder of the images
        offsets_N: byte at which each record begins
        text_bounds_N: tokens that its text cannot exceed
        image_sizes: width and height of its images in pixels, for each record
        digest: of the file, and of names and sizes of the images
        problems: of what was left out
    """

    name: str
    path: Path
    root: Path
    offsets_N: np.ndarray
    text_bounds_N: np.ndarray
    image_sizes: tuple[tuple[tuple[int, int], ...], ...]
    digest: str
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.offsets_N)

    def record(self, index: int) -> dict[str, Any]:
        """Return messages, and paths of images."""
        with self.path.open("rb") as file:
            file.seek(int(self.offsets_N[index]))
            record = parse_json_line(file.readline())
        return {"messages": record["messages"], "images": _names(record)}

    @property
    def texts(self) -> Iterator[str]:
        """The texts of all messages, in order."""
        for index in range(len(self)):
            yield from (message["content"].replace(_TAG, "") for message in self.record(index)["messages"])

    def raw(self, index: int) -> dict[str, Any]:
        """Return messages and decoded images of a record, as swift's template takes them.

        Raises:
            RunError: an image that could be read before cannot any more.
        """
        record = self.record(index)
        try:
            images = [decode_image(self.root / name) for name in record["images"]]
        except ImageError as error:
            raise RunError(f"{self.path}, record {index}: became unreadable during the run ({error})") from None
        messages = [{"role": m["role"], "content": m["content"]} for m in record["messages"]]
        return {"messages": messages, "images": images}

    def longer_than(
        self, limit: int, image: Callable[[int, int], int], length: Callable[[dict[str, Any]], int]
    ) -> list[tuple[str, int]]:
        """Return the records that have more than `limit` tokens, with their number; the longest first.

        Args:
            limit: tokens
            image: tokens of an image of that width and height
            length: tokens of a record as `raw` returns it; asked only where the record may be too long
        """
        pictures_N = np.array([sum(image(*size) for size in sizes) for sizes in self.image_sizes])
        may_N = np.flatnonzero(self.text_bounds_N + pictures_N > limit)
        found = ((f"conversation {n + 1}", length(self.raw(n))) for n in may_N.tolist())
        return sorted((pair for pair in found if pair[1] > limit), key=lambda pair: -pair[1])


def load_conversations(path: Path, images: Path | None, name: str, strict: bool, allow_outside: bool) -> Conversations:
    """Read and check a file of conversations.

    Args:
        path: JSON lines
        images: the folder that image paths are relative to; the file's own when None
        name: of the source
        strict: any problem is an error
        allow_outside: whether images may lie outside that folder

    Raises:
        InputError: no file, no usable record, or (when `strict`) any problem.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        raise InputError(f"{path}: expected a file of conversations (ms-swift's JSONL), found {found}; check the path")
    if images is not None and not images.is_dir():
        raise InputError(f"{name}: images: expected a folder of images, found nothing of that kind at {images}")
    root = images or path.parent
    sha, problems, rows = hashlib.sha256(b"conversations"), [], []
    for offset, line, where in tqdm(_lines(path), desc=f"checking {name}", unit=" records", leave=False, mininterval=1):
        sha.update(line)
        try:
            record = parse_json_line(line)
            messages = _check_messages(record)
            sizes = _check_images(record, messages, root, allow_outside)
        except ValueError as error:
            field, found, message = str(error).partition(": ")
            problems.append(Problem(where, field, message) if found else Problem(where, "record", str(error)))
            continue
        sha.update(repr(sizes).encode())
        rows.append((offset, sum(len(m["content"].encode()) + _MESSAGE_BYTES for m in messages), sizes))
    if problems and strict:
        raise InputError(f"{problems[0]} ({len(problems)} such problems; data.strict is on)")
    if not rows:
        reason = f"; the first problem: {problems[0]}" if problems else ""
        raise InputError(f"{path}: no usable conversation is left{reason}")
    offsets, bounds, sizes = zip(*rows, strict=True)
    return Conversations(
        name, path, root, np.array(offsets), np.array(bounds), sizes, sha.hexdigest()[:16], tuple(problems)
    )


def _lines(path: Path) -> Iterator[tuple[int, bytes, str]]:
    offset = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield offset, line, f"{path}:{number}"
                offset += len(line)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


def _check_messages(record: dict[str, Any]) -> list[dict[str, str]]:
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError(
            f"messages: expected a list of messages with role and content, found the keys {sorted(record)}"
        )
    for message in messages:
        role, content = (message.get(key) for key in ("role", "content")) if isinstance(message, dict) else ("", "")
        if role not in ROLES:
            raise InputError(f"messages: expected the roles {', '.join(ROLES)}, found {role!r}")
        if not isinstance(content, str):
            raise InputError(f"messages: content: expected text, found {content!r:.80}")
        if token := find_control_token(content):
            raise InputError(f"messages: content: expected plain words, found the control token {token}; take it out")
        try:
            content.encode()
        except UnicodeEncodeError:
            raise InputError("messages: content: expected valid Unicode, found half a surrogate pair") from None
    roles = [message["role"] for message in messages]
    turns = roles[1:] if roles[0] == "system" else roles
    if not turns or turns != ["user", "assistant"] * (len(turns) // 2):
        raise InputError(f"messages: expected user and assistant in turns, found {', '.join(roles[:6])}")
    if not messages[-1]["content"].strip():
        raise InputError("messages: expected an answer at the end, found an empty one")
    return messages


def _check_images(
    record: dict[str, Any], messages: Sequence[dict[str, str]], root: Path, allow_outside: bool
) -> tuple[tuple[int, int], ...]:
    """Return width and height of each image."""
    for kind in _OTHER_MEDIA:
        if record.get(kind):
            raise InputError(f"{kind}: expected text and images alone, found {kind}; take the record out")
    objects = record.get("objects")
    if isinstance(objects, dict) and objects.get("bbox"):
        raise InputError("objects: expected no boxes, found some; name the file as annotations, with format: swift")
    names = _names(record)
    tags = sum(message["content"].count(_TAG) for message in messages)
    if tags not in (0, len(names)):
        raise InputError(f"images: expected one for each of {tags} {_TAG}, found {len(names)}")
    if any(_TAG in message["content"] for message in messages if message["role"] == "assistant"):
        raise InputError(f"messages: expected {_TAG} in what the user says, found one in an answer")
    sizes = []
    for name in names:
        if not isinstance(name, str) or "\0" in name:
            raise InputError(f"images: expected paths, found {name!r:.80}")
        path = root / name if allow_outside else path_inside(root, name)
        try:
            sizes.append(image_facts(path).size)
        except ImageError as error:
            raise InputError(f"images: {name}: {error}") from None
    return tuple(sizes)


def _names(record: dict[str, Any]) -> list[Any]:
    return [item.get("path") if isinstance(item, dict) else item for item in as_list(record.get("images"))]
