"""Writes the grammar of answers as text: Lark for llguidance, in servers and in this process, EBNF for xgrammar.

Coordinates and markers are token ids in it, since a tokenizer can spell the text `<|coord_1|>` with other tokens
than the one meant. For servers Lark also enforces the order of the corners, through llguidance's parametric rules; EBNF
cannot, and neither can forbid a second, equal object: parse such answers with the parser, which counts what it drops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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

    Attributes:
        vocab: the coordinate tokens
        marker_ids: two or four, as `MarkerFamily.ids` gives them; None for JSON
        names: the only descriptions as text; None allows any of up to 64 characters
        max_objects: the most objects; None for no limit
        geometry: of the objects
        min_objects: the fewest objects
        words: ids that a description is made of, of any length; None if descriptions are text
        spelled: the only descriptions as such ids; None allows any
    """

    vocab: CoordVocab
    marker_ids: tuple[int, ...] | None
    names: tuple[str, ...] | None
    max_objects: int | None
    geometry: Geometry = GEOMETRIES["box"]
    min_objects: int = 0
    words: tuple[int, ...] | None = None
    spelled: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.marker_ids is not None and len(self.marker_ids) not in (2, 4):
            raise ValueError(f"marker_ids: expected two or four ids, found {list(self.marker_ids)}")
        for names in (self.names, self.spelled):
            if names is not None and not (names and all(names)):
                raise ValueError("names: expected at least one, none of them empty")
        if self.max_objects is not None and self.max_objects < 1:
            raise ValueError(f"max_objects: expected at least 1, found {self.max_objects}")

    @classmethod
    def for_tokenizer(
        cls,
        tokenizer: Any,
        markers: str,
        *,
        style: str = "markers",
        names: Iterable[str] | None = None,
        max_objects: int | None = 60,
        geometry: Geometry = GEOMETRIES["box"],
    ) -> AnswerForm:
        """Return the form of answers in a tokenizer's ids, for a marker family and a style of `encode_target`.

        Raises:
            ValueError: the tokenizer lacks a coordinate token or a marker, or no name or object is allowed
        """
        allowed = None if names is None else tuple(sorted(set(names)))
        ids = None if style == "json" else marker_family(markers).ids(tokenizer)
        return cls(CoordVocab.from_tokenizer(tokenizer), ids, allowed, max_objects, geometry)

    def in_ids(self, tokenizer: Any) -> AnswerForm:
        """Return the form with descriptions as ids, as targets spell them; JSON stays as it is, since it is text."""
        if self.as_json:
            return self
        added = {*tokenizer.get_added_vocab().values(), *tokenizer.all_special_ids, *self.vocab.ids}
        words = tuple(token for token in range(len(tokenizer)) if token not in added)
        ids = None if self.names is None else tokenizer(list(self.names), add_special_tokens=False)["input_ids"]
        return replace(self, words=words, spelled=None if ids is None else tuple(map(tuple, ids)))

    @property
    def as_json(self) -> bool:
        """Whether answers are JSON."""
        return self.marker_ids is None


def lark_grammar(form: AnswerForm, in_order: bool = True) -> str:
    """Return the grammar in llguidance's Lark: names, number of objects and of coordinates, x1 < x2 and y1 < y2.

    Without `in_order` coordinates are in any order, which takes half the time to match.
    """
    first, last = form.vocab.first_id, len(form.vocab.ids) - 1
    is_box = in_order and form.geometry.above == _CORNERS
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
    least = form.min_objects
    if not form.as_json:
        return f"{name}{{{least},{_most(form)}}}"
    # llguidance takes no {0,0}
    further = f" ({_quoted(', ')} {name}){{{max(least - 1, 0)},{_most(form, 1)}}}" if form.max_objects != 1 else ""
    return f'"[" ({name}{further}){"" if least else "?"} "]"'


def _most(form: AnswerForm, first: int = 0) -> str:
    """Return the most objects behind the `first` ones, as a grammar or a pattern says it."""
    return "" if form.max_objects is None else str(form.max_objects - first)


def _names(form: AnswerForm, any_name: str) -> str:
    if form.spelled is not None:
        return " | ".join(" ".join(f"<[{token}]>" for token in ids) for ids in sorted(form.spelled))
    if form.words is not None:
        return f"<[{','.join(f'{first}-{last}' for first, last in _runs(form.words))}]>+"
    if form.names is None:
        return any_name.format(_excluded(form), _NAME_CHARACTERS)
    spelled = [json.dumps(name, ensure_ascii=False)[1:-1] if form.as_json else name for name in form.names]
    return " | ".join(map(_quoted, spelled))


def _excluded(form: AnswerForm) -> str:
    """Return what free descriptions exclude: the beginning of special tokens, in JSON what has to be escaped."""
    return r'<"\\\x00-\x1f' if form.as_json else r"<\n"


def _runs(ids: Iterable[int]) -> list[list[int]]:
    """Return the first and last of each run of consecutive ids."""
    runs: list[list[int]] = []
    for token in sorted(ids):
        if runs and token == runs[-1][1] + 1:
            runs[-1][1] = token
        else:
            runs.append([token, token])
    return runs


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
        name = "|".join(spelled) or f"[^{_excluded(form)}]{{1,{_NAME_CHARACTERS}}}"
        shape = rf"{side}(?:, {side}){{{least - 1},{most - 1}}}"
        item = rf'\{{"desc": "(?:{name})", "{form.geometry.keys[0]}": \[{shape}\]\}}'
        return re.compile(rf"\[(?:{item}(?:, {item}){{0,{_most(form, 1)}}})?\]")
    start, *middle, end = map(re.escape, marker_family(markers).tokens)
    name = "|".join(map(re.escape, form.names or ())) or rf"[^<\n]{{1,{_NAME_CHARACTERS}}}"
    item = rf"{start}(?:{name}){''.join(middle)}(?:{side}){{{least},{most}}}{end}"
    return re.compile(rf"(?:{item}){{0,{_most(form)}}}")


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
