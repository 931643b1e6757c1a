"""A model behind an OpenAI-compatible server (vLLM, SGLang, `swift deploy`), asked as the checkpoint wants it.

Log-probabilities of the answer's tokens become the figures that a local answer has. A server gives the likeliest
tokens of each position alone (`top_logprobs`, 20 at most): mean, spread and quantiles of a coordinate are those of the
coordinate tokens among them, renormalised, and `coord_mass` is what they have together, a lower bound.
"""

from __future__ import annotations

import base64
import io
import math
import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from coord_codec import CoordGrid, InputError, is_coord_token, token_to_int
from coord_codec.vocab import marker_family
from coord_trainer.config.decoding import QUANTILE_LEVELS

_KEY = "OPENAI_API_KEY"
_TOP = 20
_BROKEN_OFF = ("abort", "content_filter", "error")
"""Reasons to end by which servers say that a text is no whole answer; it is not one that was cut off at the limit."""
_MOMENTS = ("expected", "spread", "quantiles", "mass")


@dataclass(frozen=True)
class EndpointEngine:
    """Asks a server, several images at a time; a request that fails is the failure of its image alone.

    Args:
        url: of the API, usually ending in /v1
        name: of the model as the server calls it
        prompt: the user's message
        system: the system message, None for none
        markers: of objects, None for JSON
        max_new_tokens: the length limit of an answer
        concurrency: requests at a time
        timeout: seconds that one request may take
        retries: of a request that was refused for now (429, 5xx) or lost, with growing pauses
        grid: of the coordinates
        constraint: fields of the request that hold the answer to a grammar, in the server's own spelling
    """

    url: str
    name: str
    prompt: str
    system: str | None
    markers: str | None
    max_new_tokens: int
    concurrency: int = 8
    timeout: float = 300.0
    retries: int = 4
    grid: CoordGrid = CoordGrid()
    constraint: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _client(self) -> Any:
        from openai import OpenAI

        key = os.environ.get(_KEY) or "none"
        return OpenAI(base_url=self.url, api_key=key, timeout=self.timeout, max_retries=self.retries)

    def answer(self, images: Sequence[Image.Image]) -> list[dict[str, Any]]:
        """Ask for all of them, at most `concurrency` at a time."""
        if len(images) == 1:
            return [self._ask(images[0])]
        with ThreadPoolExecutor(self.concurrency) as pool:
            return list(pool.map(self._ask, images))

    def _ask(self, image: Image.Image) -> dict[str, Any]:
        from openai import APIStatusError, OpenAIError

        content = [{"type": "image_url", "image_url": {"url": _data_url(image)}}, {"type": "text", "text": self.prompt}]
        messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        try:
            reply = self._client.chat.completions.create(
                model=self.name,
                messages=messages,
                max_tokens=self.max_new_tokens,
                temperature=0,
                logprobs=True,
                top_logprobs=_TOP,
                extra_body={"skip_special_tokens": False, "spaces_between_special_tokens": False}
                | dict(self.constraint),
            )
        except APIStatusError as error:
            hint = "; the path of the API is missing, which often ends in /v1" * (error.status_code == 404)
            return _error(f"{self.url} answered {error.status_code}: {_short(error.message)}{hint}")
        except OpenAIError as error:
            why = f" ({_short(str(error.__cause__))})" * (error.__cause__ is not None)
            return _error(f"{self.url}: {type(error).__name__}: {_short(str(error))}{why}")
        except ValueError as error:
            return _error(f"the reply is no JSON: {_short(str(error))}")
        try:
            choice = reply.choices[0]
            text = choice.message.content
            reason = "length" if choice.finish_reason == "length" else "stop"
            steps = choice.logprobs.content if choice.logprobs else None
        except (AttributeError, IndexError, TypeError):
            return _error("the reply has no choices: is this an OpenAI-compatible chat endpoint?")
        if choice.finish_reason in _BROKEN_OFF:
            return _error(f"the server broke the answer off (finish_reason {choice.finish_reason!r})")
        if not isinstance(text, str):
            return _error(f"the reply has no text, but {text!r:.80} (finish_reason {choice.finish_reason!r})")
        try:
            return {"text": text, "finish_reason": reason} | self._probabilities(text, steps or [])
        except (AttributeError, TypeError, ValueError, OverflowError):  # not the log-probabilities of the interface
            return {"text": text, "finish_reason": reason}

    def _probabilities(self, text: str, steps: Sequence[Any]) -> dict[str, Any]:
        """Return what the tokens' log-probabilities say; nothing where the server gives none or others."""
        ended = len(steps)
        while ended and "".join(step.token for step in steps[:ended]) != text:
            ended -= 1  # the token that ends the turn may be listed, and is no part of the text
        steps = steps[:ended]
        listed = [item.logprob for step in steps for item in (step, *(step.top_logprobs or ()))]
        if (text and not steps) or not all(math.isfinite(value) for value in listed):
            return {}
        found: dict[str, Any] = {f"coord_{name}": [] for name in ("logprobs", *_MOMENTS)}
        for step in steps:
            if not is_coord_token(step.token):
                continue
            found["coord_logprobs"].append(min(step.logprob, 0.0))
            for name, value in zip(_MOMENTS, self._moments(step), strict=True):
                found[f"coord_{name}"].append(value)
        if self.markers is not None:
            found |= self._descriptions(steps)
        return found

    def _moments(self, step: Any) -> tuple[float, float, list[float], float]:
        """Return mean, spread and quantiles in [0, 1] of a coordinate, and the mass of the coordinate tokens seen."""
        seen = {item.token: item.logprob for item in step.top_logprobs or ()} | {step.token: step.logprob}
        pairs = [
            (token_to_int(token) / self.grid.scale, math.exp(log_p))
            for token, log_p in seen.items()
            if is_coord_token(token)
        ]
        mass = sum(p for _, p in pairs)
        if not mass:
            side = token_to_int(step.token) / self.grid.scale
            return side, 0.0, [side] * len(QUANTILE_LEVELS), 0.0
        mean = sum(side * p for side, p in pairs) / mass
        variance = sum((side - mean) ** 2 * p for side, p in pairs) / mass
        sides, weights = zip(*sorted(pairs), strict=True)
        below = list(accumulate(weights[:-1]))
        quantiles = [sides[bisect_left(below, level * mass)] for level in QUANTILE_LEVELS]
        return min(mean, 1.0), math.sqrt(variance), quantiles, min(mass, 1.0)

    def _descriptions(self, steps: Sequence[Any]) -> dict[str, Any]:
        tokens = marker_family(str(self.markers)).tokens
        words: list[list[float]] = []
        is_open = False
        for step in steps:
            if step.token == tokens[0]:
                words.append([])
                is_open = True
            elif step.token in tokens or is_coord_token(step.token):
                is_open = False
            elif is_open:
                words[-1].append(min(step.logprob, 0.0))
        return {
            "desc_logprobs": [log_p for word in words for log_p in word],
            "desc_token_counts": [len(word) for word in words],
        }


def checked_url(url: str) -> str:
    """Return the URL of an API.

    Raises:
        InputError: it is none
    """
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        is_one = False
    if not is_one or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"--endpoint: expected a URL such as http://localhost:8000/v1, found {url!r}")
    return url


def check_key() -> None:
    """Raise an InputError where the environment's key for the server cannot be sent."""
    key = os.environ.get(_KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{_KEY}: expected printable ASCII characters, found others; is there a line break in it?")


def _data_url(image: Image.Image) -> str:
    """Return the pixels without loss: what the server's processor sees is what a local one would."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _error(reason: str) -> dict[str, Any]:
    return {"text": None, "finish_reason": "error", "error": reason}


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
