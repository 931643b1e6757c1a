"""Conversations with any number of images in ms-swift's JSONL, which preserve the chat ability of a fine-tuned model.

A record is `{"messages": [{"role": "user", "content": "<image>..."}, ...], "images": ["a.jpg"]}`. swift's own template
encodes it, so that its loss is swift's. It has no boxes and contributes to the text loss term only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from coord_codec import InputError, Problem, RunError
from coord_codec.files import parse_json_line, path_inside
from coord_codec.vocab import find_control_token
from coord_data.sources.raw import as_list
from coord_eval import ImageError, decode_image, image_facts

ROLES = ("system", "user", "assistant")
_TAG = "<image>"
_OTHER_MEDIA = ("videos", "audios", "tools")
_MESSAGE_BYTES = 32
"""Upper bound of the tokens that a chat template adds to a message."""


@dataclass(frozen=True)
class Conversations:
    """Index of the usable records of a file. Records are read from the file when they are needed.

    Attributes:
        name: name of the source
        path: the file
        root: folder of the images
        offsets_N: byte offset of each record
        text_bounds_N: upper bound of the number of text tokens of each record
        image_sizes: width and height in pixels of the images of each record
        digest: hash of the file and of the sizes of its images
        problems: records that were left out, with the reason
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
        """Return the messages and image paths of a record."""
        with self.path.open("rb") as file:
            file.seek(int(self.offsets_N[index]))
            record = parse_json_line(file.readline())
        return {"messages": record["messages"], "images": _names(record)}

    @property
    def texts(self) -> Iterator[str]:
        """Yield the text of every message, in order."""
        for index in range(len(self)):
            yield from (message["content"].replace(_TAG, "") for message in self.record(index)["messages"])

    def raw(self, index: int) -> dict[str, Any]:
        """Return the messages and decoded images of a record, as swift's template expects them.

        Raises:
            RunError: an image can no longer be read.
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
        """Return the records with more than `limit` tokens and their token counts, the longest first.

        Args:
            limit: maximum number of tokens
            image: number of tokens of an image of a width and height
            length: number of tokens of a record as `raw` returns it; called only for records that may be too long
        """
        image_tokens_N = np.array([sum(image(*size) for size in sizes) for sizes in self.image_sizes])
        candidates_N = np.flatnonzero(self.text_bounds_N + image_tokens_N > limit)
        lengths = ((f"conversation {n + 1}", length(self.raw(n))) for n in candidates_N.tolist())
        return sorted((pair for pair in lengths if pair[1] > limit), key=lambda pair: -pair[1])


def load_conversations(path: Path, images: Path | None, name: str, strict: bool, allow_outside: bool) -> Conversations:
    """Read and check a file of conversations.

    Args:
        path: file of JSON lines
        images: folder that image paths are relative to; the folder of the file if None
        name: name of the source
        strict: treat any problem as an error
        allow_outside: whether images may lie outside that folder

    Raises:
        InputError: the file does not exist, has no usable record, or (if `strict`) has a problem.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        raise InputError(f"{path}: expected a file of conversations (ms-swift's JSONL), found {found}; check the path")
    if images is not None and not images.is_dir():
        raise InputError(f"{name}: images: expected a folder of images, found nothing of that kind at {images}")
    root = images or path.parent
    sha, problems = hashlib.sha256(b"conversations"), list[Problem]()
    rows: list[tuple[int, int, tuple[tuple[int, int], ...]]] = []
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
    offsets, bounds, image_sizes = zip(*rows, strict=True)
    return Conversations(
        name, path, root, np.array(offsets), np.array(bounds), image_sizes, sha.hexdigest()[:16], tuple(problems)
    )


def _lines(path: Path) -> Iterator[tuple[int, bytes, str]]:
    offset = 0
    try:
        with path.open("rb") as file:
            for line_number, line in enumerate(file, start=1):
                if line.strip():
                    yield offset, line, f"{path}:{line_number}"
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
        if token := find_control_token(content.replace(_TAG, "")):
            raise InputError(f"messages: content: expected plain words, found the control token {token}; remove it")
        try:
            content.encode()
        except UnicodeEncodeError:
            raise InputError("messages: content: expected valid Unicode, found half a surrogate pair") from None
    roles = [message["role"] for message in messages]
    turns = roles[1:] if roles[0] == "system" else roles
    if not turns or turns != ["user", "assistant"] * (len(turns) // 2):
        raise InputError(f"messages: expected user and assistant messages in alternation, found {', '.join(roles[:6])}")
    if not messages[-1]["content"].strip():
        raise InputError("messages: expected an answer at the end, found an empty one")
    return messages


def _check_images(
    record: dict[str, Any], messages: Sequence[dict[str, str]], root: Path, allow_outside: bool
) -> tuple[tuple[int, int], ...]:
    """Return the width and height of each image."""
    for kind in _OTHER_MEDIA:
        if record.get(kind):
            raise InputError(f"{kind}: expected text and images alone, found {kind}; remove the record")
    objects = record.get("objects")
    if isinstance(objects, dict) and objects.get("bbox"):
        raise InputError("objects: expected no boxes, found some; name the file as annotations, with format: swift")
    names = _names(record)
    tags = sum(message["content"].count(_TAG) for message in messages)
    if tags not in (0, len(names)):
        raise InputError(f"images: expected one for each of {tags} {_TAG}, found {len(names)}")
    if any(_TAG in message["content"] for message in messages if message["role"] == "assistant"):
        raise InputError(f"messages: expected {_TAG} in user messages alone, found one in an answer")
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
