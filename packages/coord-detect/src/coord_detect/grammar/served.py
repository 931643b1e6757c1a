"""Writes the grammar as text that inference servers compile: Lark for llguidance, EBNF for xgrammar.

Coordinates and markers are token ids in it, since a tokenizer can spell the text `<|coord_1|>` with other tokens
than the one meant. Lark also enforces the order of the corners, through llguidance's parametric rules; EBNF cannot,
and neither can forbid a second, equal object: parse such answers with the parser, which counts what it drops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from coord_codec import GEOMETRIES, CoordVocab, Geometry, InputError
from coord_codec.vocab import marker_family

if TYPE_CHECKING:
    from coord_detect.settings.record import Settings

_NAME_CHARACTERS = 64
_CORNERS = (None, None, 0, 1)
"""The order of numbers that Lark's rules can express: that of two corners."""


@dataclass(frozen=True)
class AnswerForm:
    """The form of answers in the ids of a tokenizer.

    JSON has no `marker_ids`; without `names` a description has up to 64 characters.
    """

    vocab: CoordVocab
    marker_ids: tuple[int, ...] | None
    names: tuple[str, ...] | None
    max_objects: int
    geometry: Geometry = GEOMETRIES["box"]

    @classmethod
    def for_tokenizer(
        cls,
        tokenizer: Any,
        markers: str,
        *,
        style: str = "markers",
        names: Iterable[str] | None = None,
        max_objects: int = 60,
        geometry: Geometry = GEOMETRIES["box"],
    ) -> AnswerForm:
        """Return the form of answers in a tokenizer's ids, for a marker family and a style of `encode_target`.

        Raises:
            ValueError: the tokenizer lacks a coordinate token or a marker, or no name or object is allowed
        """
        allowed = None if names is None else tuple(sorted(set(names)))
        if allowed == () or (allowed is not None and "" in allowed):
            raise ValueError("names: expected at least one, none of them empty")
        if max_objects < 1:
            raise ValueError(f"max_objects: expected at least 1, found {max_objects}")
        ids = None if style == "json" else marker_family(markers).ids(tokenizer)
        return cls(CoordVocab.from_tokenizer(tokenizer), ids, allowed, max_objects, geometry)

    @property
    def as_json(self) -> bool:
        """Whether answers are JSON."""
        return self.marker_ids is None


def lark_grammar(form: AnswerForm) -> str:
    """Return the grammar in llguidance's Lark: names, number of objects and of coordinates, x1 < x2 and y1 < y2."""
    first, last = form.vocab.first_id, len(form.vocab.ids) - 1
    is_box = form.geometry.above == _CORNERS
    rules = {
        "start": _repeated(form, "object"),
        "object": _object(form, lambda token: f"<[{token}]>", "x1::0x0" if is_box else _coordinates(form)),
        "name": _names(form, "/[^{}]{{1,{}}}/"),
    }
    rules |= _corners_in_order(form) if is_box else {"side": f"<[{first}-{first + last}]>"}
    return "".join(f"{name}: {body}\n" for name, body in rules.items())


def _corners_in_order(form: AnswerForm) -> dict[str, str]:
    """Return the rules of a box in Lark; their parameter passes x1 and y1 on to x2 and y2."""
    first, last = form.vocab.first_id, len(form.vocab.ids) - 1
    bits = last.bit_length()
    comma = f"{_quoted(', ')} " if form.as_json else ""
    spans = [(k, f"<[{first + k + 1}-{first + last}]>") for k in range(last)]
    return {
        "x1::_": " | ".join(f"<[{first + k}]> {comma}y1::bit_or({k})" for k in range(last)),
        "y1::_": " | ".join(f"<[{first + k}]> {comma}x2::bit_or({k << bits})" for k in range(last)),
        "x2::_": " | ".join(f"{span} {comma}y2::_ %if eq([0:{bits}], {k})" for k, span in spans),
        "y2::_": " | ".join(f"{span} %if eq([{bits}:{2 * bits}], {k})" for k, span in spans),
    }


def ebnf_grammar(form: AnswerForm) -> str:
    """Return the grammar in xgrammar's EBNF: names, number of objects and of coordinates; not the order of corners."""
    rules = {
        "root": _repeated(form, "object"),
        "object": _object(form, lambda token: f"Token({token})", _coordinates(form)),
        "name": _names(form, "[^{}]{{1,{}}}"),
        "side": f"Token({', '.join(map(str, form.vocab.ids))})",
    }
    return "".join(f"{name} ::= {body}\n" for name, body in rules.items())


def _coordinates(form: AnswerForm) -> str:
    """Return the coordinates of a shape, each a `side`: the first ones, then as many steps as its geometry allows."""
    comma, geometry = f" {_quoted(', ')} " if form.as_json else " ", form.geometry
    if geometry.fixed:
        return comma.join(["side"] * geometry.least)
    first = (geometry.least - 1) % geometry.step + 1
    least, most = (geometry.least - first) // geometry.step, (geometry.longest - first) // geometry.step
    step = comma.join(["side"] * geometry.step)
    return f"{comma.join(['side'] * first)} ({comma.lstrip()}{step}){{{least},{most}}}"


def _object(form: AnswerForm, token: Any, shape: str) -> str:
    if form.marker_ids is None:
        key = form.geometry.keys[0]
        return " ".join((_quoted('{"desc": "'), "name", _quoted(f'", "{key}": ['), shape, _quoted("]}")))
    start, *middle, end = map(token, form.marker_ids)
    return " ".join((start, "name", *middle, shape, end))


def _repeated(form: AnswerForm, name: str) -> str:
    if not form.as_json:
        return f"{name}{{0,{form.max_objects}}}"
    return f'"[" ({name} ({_quoted(", ")} {name}){{0,{form.max_objects - 1}}})? "]"'


def _names(form: AnswerForm, any_name: str) -> str:
    if form.names is None:
        # Excludes the beginning of special tokens, and in JSON the characters that would have to be escaped.
        return any_name.format(r"<\n" + (r'"\\' if form.as_json else ""), _NAME_CHARACTERS)
    spelled = [json.dumps(name, ensure_ascii=False)[1:-1] if form.as_json else name for name in form.names]
    return " | ".join(map(_quoted, spelled))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def answer_pattern(form: AnswerForm, markers: str) -> re.Pattern[str]:
    """Return the pattern of texts that both grammars allow, up to the order of the corners of boxes.

    Example:
        >>> form = AnswerForm(CoordVocab(100), (1, 2), ("cat",), max_objects=2)
        >>> cat = "<obj_start>cat<|coord_1|><|coord_2|><|coord_3|><|coord_4|><obj_end>"
        >>> pattern = answer_pattern(form, "obj")
        >>> [bool(pattern.fullmatch(text)) for text in (cat, cat + cat, cat * 3, "a cat", cat.replace("cat", "dog"))]
        [True, True, False, False, False]
    """
    side = r"<\|coord_\d+\|>"
    least, most = form.geometry.least, form.geometry.longest
    if form.as_json:
        spelled = [re.escape(json.dumps(name, ensure_ascii=False)[1:-1]) for name in form.names or ()]
        name = "|".join(spelled) or rf'[^<\n"\\]{{1,{_NAME_CHARACTERS}}}'
        shape = rf"{side}(?:, {side}){{{least - 1},{most - 1}}}"
        item = rf'\{{"desc": "(?:{name})", "{form.geometry.keys[0]}": \[{shape}\]\}}'
        return re.compile(rf"\[(?:{item}(?:, {item}){{0,{form.max_objects - 1}}})?\]")
    start, *middle, end = map(re.escape, marker_family(markers).tokens)
    name = "|".join(map(re.escape, form.names or ())) or rf"[^<\n]{{1,{_NAME_CHARACTERS}}}"
    item = rf"{start}(?:{name}){''.join(middle)}(?:{side}){{{least},{most}}}{end}"
    return re.compile(rf"(?:{item}){{0,{form.max_objects}}}")


SERVERS: Mapping[str, Callable[[AnswerForm], dict[str, Any]]] = MappingProxyType(
    {
        "vllm": lambda form: {"structured_outputs": {"grammar": lark_grammar(form)}},
        "sglang": lambda form: {"ebnf": ebnf_grammar(form)},
    }
)
"""Fields that a request to a server has besides OpenAI's: vLLM (>= 0.12) with `--structured-outputs-config.backend
guidance`, SGLang with its default backend, xgrammar."""


def answer_form(folder: Path, config: Settings, names: Sequence[str]) -> AnswerForm:
    """Return the form of a model's answers in the ids of the tokenizer in `folder`; no `names` allow any.

    Raises:
        InputError: the folder has no readable tokenizer, the tokenizer lacks a coordinate token or a marker, or the
            model was trained to answer in plain numbers.
    """
    if not config.custom.coord_tokens.enabled:
        raise InputError(f"{folder}: the model answers in plain numbers, and only coordinate tokens have a grammar")
    tokenizer, data = read_tokenizer(folder), config.data
    try:
        return AnswerForm.for_tokenizer(
            tokenizer,
            data.markers,
            style=data.style,
            names=names or None,
            max_objects=data.max_objects,
            geometry=data.shape,
        )
    except ValueError as error:
        raise InputError(f"{folder}: {error}") from None


def read_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a model's folder, by `tokenizers` alone where it has a tokenizer.json.

    `transformers`, which imports torch, is needed only for older forms of tokenizers.

    Raises:
        InputError: the folder has no readable tokenizer.
    """
    file = folder / "tokenizer.json"
    try:
        if file.is_file():
            from tokenizers import Tokenizer

            return Tokenizer.from_file(str(file))
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # tokenizers raises no exceptions of its own kind
        raise InputError(f"{folder}: found no tokenizer that can be read: {str(error).splitlines()[0]}") from None
