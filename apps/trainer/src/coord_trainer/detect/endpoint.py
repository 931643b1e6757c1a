"""Client of OpenAI-compatible servers (vLLM, SGLang, `swift deploy`), with the prompt that the checkpoint expects.

Log-probabilities of tokens are turned into the fields of a local prediction. A server returns only the most likely
tokens of each position (`top_logprobs`, at most 20): mean, spread and quantiles of a coordinate are computed from the
coordinate tokens among them, renormalised, and `coord_mass` is their total probability, a lower bound.
"""

from __future__ import annotations

import base64
import io
import math
import os
import re
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
from coord_codec.counts import counted
from coord_codec.vocab import marker_family
from coord_trainer.config.decoding import QUANTILE_LEVELS
from coord_trainer.console import say
from coord_trainer.detect.servers import Servers

_KEY = "OPENAI_API_KEY"
_TOP = 20
_TEMPORARY = (408, 409, 429)
"""Status codes, beside 5xx, of requests that another server may answer."""
_BROKEN_OFF = ("abort", "content_filter", "error")
"""Finish reasons of an answer that the server aborted, as opposed to one that reached the length limit."""
_EMPTY_THOUGHT = re.compile(r"<think>\s*</think>\s*")
_MOMENTS = ("expected", "spread", "quantiles", "mass")


@dataclass(frozen=True)
class EndpointEngine:
    """Sends concurrent requests to one or several servers of a model; a request that fails affects only its image.

    Args:
        urls: URLs of the API, usually ending in /v1; the server with the fewest requests gets the next
        name: name of the model on each server
        prompt: the user's message
        system: the system message, or None
        markers: the family of object markers, None for JSON
        max_new_tokens: the length limit of an answer
        concurrency: number of concurrent requests
        timeout: seconds that one request may take
        retries: number of retries after a temporary error (429, 5xx) or a lost connection, with growing pauses
        grid: the grid of the coordinates
        constraint: fields of the request that constrain the answer by a grammar, as the server expects them
        chat_template_kwargs: settings of the server's chat template, without which it would ask with another prompt
    """

    urls: tuple[str, ...]
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
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _clients(self) -> dict[str, Any]:
        from openai import OpenAI

        key = os.environ.get(_KEY) or "none"
        return {
            url: OpenAI(base_url=url, api_key=key, timeout=self.timeout, max_retries=self.retries) for url in self.urls
        }

    @cached_property
    def _servers(self) -> Servers:
        return Servers(self.urls)

    def report(self) -> None:
        """Print which servers did not answer so that others had to."""
        for url, count in self._servers.moved.items():
            say(f"  {url} did not answer {counted(count, 'request')}, which the other servers took over")

    def answer(
        self, images: Sequence[Image.Image], prompt: str | None = None, pixels: float = 1.0
    ) -> list[dict[str, Any]]:
        """Request the answers to all images, at most `concurrency` at a time; a server has its own limits of pixels."""
        message = prompt or self.prompt
        if len(images) == 1:
            return [self._request(images[0], message)]
        with ThreadPoolExecutor(self.concurrency) as pool:
            return list(pool.map(lambda image: self._request(image, message), images))

    def _request(self, image: Image.Image, prompt: str) -> dict[str, Any]:
        from openai import APIConnectionError, OpenAIError

        content = [{"type": "image_url", "image_url": {"url": _data_url(image)}}, {"type": "text", "text": prompt}]
        messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        tried: list[str] = []
        while True:
            with self._servers.least_busy(tried) as url:
                tried.append(url)
                is_last = len(tried) == len(self.urls)
                try:
                    return self._ask(url, messages, self.retries if is_last else 0)
                except OpenAIError as error:
                    is_lost, status = isinstance(error, APIConnectionError), getattr(error, "status_code", 0)
                    if is_last or not (is_lost or status in _TEMPORARY or status >= 500):
                        return _error(f"{url}{_reason(error)}")
            self._servers.move_on(url, is_lost)

    def _ask(self, url: str, messages: list[dict[str, Any]], retries: int) -> dict[str, Any]:
        """Return a server's answer.

        Raises:
            OpenAIError: if it does not answer, or refuses
        """
        settings = {"chat_template_kwargs": dict(self.chat_template_kwargs)} if self.chat_template_kwargs else {}
        try:
            reply = (
                self._clients[url]
                .with_options(max_retries=retries)
                .chat.completions.create(
                    model=self.name,
                    messages=messages,
                    max_tokens=self.max_new_tokens,
                    temperature=0,
                    logprobs=True,
                    top_logprobs=_TOP,
                    extra_body={"skip_special_tokens": False, "spaces_between_special_tokens": False}
                    | settings
                    | dict(self.constraint),
                )
            )
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
            return _error(f"the server aborted the answer (finish_reason {choice.finish_reason!r})")
        if not isinstance(text, str):
            return _error(f"the reply has no text, but {text!r:.80} (finish_reason {choice.finish_reason!r})")
        if self.chat_template_kwargs:
            text = _without_end_of_prompt(text, steps or [])
        try:
            return {"text": text, "finish_reason": reason} | self._probabilities(text, steps or [])
        except (AttributeError, TypeError, ValueError, OverflowError):  # malformed log-probabilities
            return {"text": text, "finish_reason": reason}

    def _probabilities(self, text: str, steps: Sequence[Any]) -> dict[str, Any]:
        """Return fields computed from the tokens' log-probabilities; empty if the server's are missing or malformed."""
        end = len(steps)
        while end and "".join(step.token for step in steps[:end]) != text:
            end -= 1  # the end-of-turn token may be listed, but is no part of the text
        steps = steps[:end]
        values = [item.logprob for step in steps for item in (step, *(step.top_logprobs or ()))]
        if (text and not steps) or not all(math.isfinite(value) for value in values):
            return {}
        fields: dict[str, Any] = {f"coord_{name}": [] for name in ("logprobs", *_MOMENTS)}
        for step in steps:
            if not is_coord_token(step.token):
                continue
            fields["coord_logprobs"].append(min(step.logprob, 0.0))
            for name, value in zip(_MOMENTS, self._moments(step), strict=True):
                fields[f"coord_{name}"].append(value)
        if self.markers is not None:
            fields |= self._descriptions(steps)
        return fields

    def _moments(self, step: Any) -> tuple[float, float, list[float], float]:
        """Return mean, spread and quantiles of a coordinate in [0, 1], and the total probability of the listed bins."""
        listed = {item.token: item.logprob for item in step.top_logprobs or ()} | {step.token: step.logprob}
        pairs = [
            (token_to_int(token) / self.grid.scale, math.exp(log_p))
            for token, log_p in listed.items()
            if is_coord_token(token)
        ]
        mass = sum(p for _, p in pairs)
        if not mass:
            value = token_to_int(step.token) / self.grid.scale
            return value, 0.0, [value] * len(QUANTILE_LEVELS), 0.0
        mean = sum(value * p for value, p in pairs) / mass
        variance = sum((value - mean) ** 2 * p for value, p in pairs) / mass
        values, weights = zip(*sorted(pairs), strict=True)
        cumulative = list(accumulate(weights[:-1]))
        quantiles = [values[bisect_left(cumulative, level * mass)] for level in QUANTILE_LEVELS]
        return min(mean, 1.0), math.sqrt(variance), quantiles, min(mass, 1.0)

    def _descriptions(self, steps: Sequence[Any]) -> dict[str, Any]:
        tokens = marker_family(str(self.markers)).tokens
        descriptions: list[list[float]] = []
        is_open = False
        for step in steps:
            if step.token == tokens[0]:
                descriptions.append([])
                is_open = True
            elif step.token in tokens or is_coord_token(step.token):
                is_open = False
            elif is_open:
                descriptions[-1].append(min(step.logprob, 0.0))
        return {
            "desc_logprobs": [log_p for description in descriptions for log_p in description],
            "desc_token_counts": [len(description) for description in descriptions],
        }


def _without_end_of_prompt(text: str, steps: Sequence[Any]) -> str:
    """Return an answer without the empty thought of its prompt, which ms-swift's server writes before the answer.

    One that the model has generated itself is among the tokens of `steps`, and stays.
    """
    repeated = _EMPTY_THOUGHT.match(text)
    if repeated is None or any("think>" in str(getattr(step, "token", "")) for step in steps):
        return text
    return text[repeated.end() :]


def checked_url(url: str) -> str:
    """Return the URL of an API unchanged.

    Raises:
        InputError: if it is not a URL of an HTTP server
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port
        is_valid = False
    if not is_valid or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"--endpoint: expected a URL such as http://localhost:8000/v1, found {url!r}")
    return url


def check_key() -> None:
    """Check the API key in the environment.

    Raises:
        InputError: if it cannot be sent in an HTTP header
    """
    key = os.environ.get(_KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{_KEY}: expected printable ASCII characters, found others; is there a line break in it?")


def _data_url(image: Image.Image) -> str:
    """Return the image as lossless PNG, so that the server processes the same pixels as a local processor."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _reason(error: Any) -> str:
    """Return why a request failed, to be written behind the URL."""
    if (status := getattr(error, "status_code", None)) is None:
        cause = f" ({_short(str(error.__cause__))})" if error.__cause__ is not None else ""
        return f": {type(error).__name__}: {_short(str(error))}{cause}"
    is_path = status == 404 and "model" not in error.message  # else the server knows no model of this name
    hint = "; the path of the API is missing, which often ends in /v1" if is_path else ""
    return f" answered {status}: {_short(error.message)}{hint}"


def _error(reason: str) -> dict[str, Any]:
    return {"text": None, "finish_reason": "error", "error": reason}


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
