"""Client of OpenAI-compatible servers (vLLM, SGLang, `swift deploy`), with the prompt that the checkpoint expects.

Log-probabilities of tokens are turned into the fields of a local prediction. A server returns only the most likely
tokens of each position (`top_logprobs`, at most 20): mean, spread and quantiles of a coordinate are computed from the
coordinate tokens among them, renormalised, and `coord_mass` is their total probability, a lower bound.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from PIL import Image
from pydantic_core import from_json
from urllib3 import PoolManager, ProxyManager, Retry
from urllib3.exceptions import HTTPError, MaxRetryError

from coord_codec import CoordGrid, InputError, coord_tokens
from coord_codec.counts import counted
from coord_codec.vocab import marker_family
from coord_detect.answers.descriptions import description_fields
from coord_detect.console import say
from coord_detect.served.answer_tokens import AnswerTokens, written_as_nothing
from coord_detect.served.sent_image import SentSides
from coord_detect.served.servers import Servers
from coord_detect.settings.decoding import QUANTILE_LEVELS

_KEY = "OPENAI_API_KEY"
_TOP = 20
_TEMPORARY = frozenset({408, 409, 429, *range(500, 600)})
"""Status codes of requests that are sent again, or that another server may answer."""
_OPTIONAL = ("logprobs", "top_logprobs", "skip_special_tokens", "spaces_between_special_tokens")
"""Fields of a request without which the answer is the same, so that a server that refuses them is asked without."""
_NOT_TAKEN = (400, 422)
"""Status codes of a request whose fields a server does not take."""
_LONGEST_PAUSE = 60
"""Seconds that a client waits at most where a busy server names a time."""
_BROKEN_OFF = ("abort", "content_filter", "error")
"""Finish reasons of an answer that the server aborted, as opposed to one that reached the length limit."""
_VALUES = {token: k / CoordGrid().scale for k, token in enumerate(coord_tokens())}
_EMPTY_THOUGHT = re.compile(r"<think>\s*</think>\s*")
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
"""What log-probabilities of another form raise."""
_MOMENTS = ("expected", "spread", "quantiles", "mass")


@dataclass
class EndpointEngine:
    """Sends requests to one or several servers of a model; one that fails affects only its image.

    Args:
        urls: URLs of the API, usually ending in /v1; the server with the fewest requests gets the next
        name: name of the model on each server
        prompt: the user's message
        system: the system message, or None
        markers: the family of object markers, None for JSON
        max_new_tokens: the length limit of an answer
        concurrency: number of threads that ask at once
        timeout: seconds that one request may take
        retries: number of retries after a temporary error (429, 5xx) or a lost connection, with growing pauses
        constraint: fields of the request that constrain the answer by a grammar, as the server expects them
        chat_template_kwargs: settings of the server's chat template, without which it would ask with another prompt
        sides: the sides at which images are sent; None for their own
        tokens: the tokens that are put back into answers whose server writes them as nothing
        coordinates: whether an answer with objects has coordinate tokens
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
    constraint: Mapping[str, Any] = field(default_factory=dict)
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    sides: SentSides | None = None
    tokens: AnswerTokens = field(default_factory=AnswerTokens)
    coordinates: bool = True

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._refused: dict[str, frozenset[str]] = dict.fromkeys(self.urls, frozenset())
        self._servers = Servers(self.urls)
        self._pools = {url: _pool(url, self.concurrency) for url in self.urls}
        self._headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get(_KEY) or 'none'}",
        }
        self._retries = Retry(
            self.retries,
            allowed_methods=None,
            status_forcelist=_TEMPORARY,
            backoff_factor=0.5,
            backoff_jitter=0.5,
            retry_after_max=_LONGEST_PAUSE,
            raise_on_status=False,
        )

    def report(self) -> None:
        """Print which servers did not answer so that others had to."""
        for url, count in self._servers.moved.items():
            say(f"  {url} did not answer {counted(count, 'request')}, which the other servers took over")

    def answer(
        self, images: Sequence[Image.Image], prompt: str | None = None, pixels: float = 1.0
    ) -> list[dict[str, Any]]:
        """Request the answers one by one; several threads may call this, and a server has its own limits of pixels."""
        sent = [self.sides.resized(image, pixels) if self.sides is not None else image for image in images]
        return [self._request(image, prompt or self.prompt) for image in sent]

    def _request(self, image: Image.Image, prompt: str) -> dict[str, Any]:
        content = [{"type": "image_url", "image_url": {"url": _data_url(image)}}, {"type": "text", "text": prompt}]
        messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        request: dict[str, Any] = {
            "model": self.name,
            "messages": messages,
            "max_tokens": self.max_new_tokens,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": _TOP,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            **self.constraint,
        }
        if self.chat_template_kwargs:
            request["chat_template_kwargs"] = dict(self.chat_template_kwargs)
        tried: list[str] = []
        while True:
            with self._servers.least_busy(tried) as url:
                tried.append(url)
                is_last = len(tried) == len(self.urls)
                retries = self._retries if is_last else self._retries.new(total=0)
                try:
                    reply = self._post(url, request, retries)
                except HTTPError as error:
                    is_lost, reason = True, f": no answer: {_cause(error)}"
                else:
                    if reply.status < 300:
                        return self._answer(reply.data)
                    is_lost, reason = False, _refusal(reply.status, reply.data)
                if is_last or not (is_lost or reply.status in _TEMPORARY):
                    return _error(f"{url}{reason}")
            self._servers.move_on(url, is_lost)

    def _post(self, url: str, request: Mapping[str, Any], retries: Retry) -> Any:
        """Return the server's reply; one that refuses optional fields is asked without them, then and from then on."""
        while True:
            refused = self._refused[url]
            body = json.dumps({name: value for name, value in request.items() if name not in refused}).encode()
            sent: dict[str, Any] = {"body": body, "headers": self._headers, "timeout": self.timeout}
            place = f"{url.rstrip('/')}/chat/completions"
            reply = self._pools[url].request("POST", place, retries=retries, **sent)
            named = _refused_fields(reply.data) - refused if reply.status in _NOT_TAKEN else frozenset()
            if not named:
                return reply
            with self._lock:
                self._refused[url] |= named
            without = "; boxes have no scores by probability" if "logprobs" in named else ""
            fields = ", ".join(sorted(named))
            self._say_once(
                f"{url} {fields}", f"  {url} answered {reply.status} to {fields}: it is asked without{without}"
            )

    def _say_once(self, subject: str, text: str) -> None:
        with self._lock:
            is_new = subject not in self._told
            self._told.add(subject)
        if is_new:
            say(text)

    def _answer(self, data: bytes) -> dict[str, Any]:
        """Return the answer in the body of a reply."""
        try:
            reply = from_json(data)
        except ValueError as error:
            return _error(f"the reply is no JSON: {_short(str(error))}")
        try:
            choice = reply["choices"][0]
            text, finish_reason = choice["message"]["content"], choice["finish_reason"]
            steps = (choice.get("logprobs") or {}).get("content") or []
        except (AttributeError, KeyError, IndexError, TypeError):
            return _error("the reply has no choices: is this an OpenAI-compatible chat endpoint?")
        if finish_reason in _BROKEN_OFF:
            return _error(f"the server aborted the answer (finish_reason {finish_reason!r})")
        if not isinstance(text, str):
            return _error(f"the reply has no text, but {text!r:.80} (finish_reason {finish_reason!r})")
        if self.chat_template_kwargs:
            text = _without_end_of_prompt(text, steps)
        text, steps = self._restored(text, steps)
        answer = {"text": text, "finish_reason": "length" if finish_reason == "length" else "stop"}
        try:
            return answer | self._probabilities(text, steps)
        except _MALFORMED:
            return answer

    def _restored(self, text: str, steps: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        """Return an answer with the tokens that its server wrote as nothing, or say what keeps them in its texts."""
        with suppress(*_MALFORMED):
            text, steps = self.tokens.restored(text, steps)
        lost = written_as_nothing(steps) or not steps
        if self.coordinates and any(map(str.isalnum, text)) and lost and not any(token in text for token in _VALUES):
            self._say_once(
                "no coordinates",
                f"  an answer has text but no coordinate token ({_short(text)!r:.80}), as of a server that leaves "
                "special tokens out of its texts: llama.cpp keeps them with --special, other servers with "
                "skip_special_tokens false; where a server lists the ids of tokens beside logprobs, they are put back "
                "with the tokenizer of MODEL",
            )
        return text, steps

    def _probabilities(self, text: str, steps: Sequence[Any]) -> dict[str, Any]:
        """Return fields computed from the tokens' log-probabilities; empty if the server's are missing or malformed."""
        end = len(steps)
        while end and "".join(step["token"] for step in steps[:end]) != text:
            end -= 1  # the end-of-turn token may be listed, but is no part of the text
        steps = steps[:end]
        values = [item["logprob"] for step in steps for item in (step, *(step.get("top_logprobs") or ()))]
        if (text and not steps) or not all(map(math.isfinite, values)):
            return {}
        fields: dict[str, Any] = {f"coord_{name}": [] for name in ("logprobs", *_MOMENTS)}
        for step in steps:
            if step["token"] in _VALUES:
                fields["coord_logprobs"].append(min(step["logprob"], 0.0))
                for name, value in zip(_MOMENTS, _moments(step), strict=True):
                    fields[f"coord_{name}"].append(value)
        if self.markers is not None:
            log_p = [min(step["logprob"], 0.0) for step in steps]
            tokens = [step["token"] for step in steps]
            fields |= description_fields(tokens, log_p, marker_family(self.markers).tokens, _VALUES)
        return fields


def _moments(step: Any) -> tuple[float, float, list[float], float]:
    """Return mean, spread and quantiles of a coordinate in [0, 1], and the total probability of the listed bins."""
    listed = {item["token"]: item["logprob"] for item in (*(step.get("top_logprobs") or ()), step)}
    pairs = sorted((_VALUES[token], math.exp(log_p)) for token, log_p in listed.items() if token in _VALUES)
    mass = sum(p for _, p in pairs)
    if not mass:
        value = _VALUES[step["token"]]
        return value, 0.0, [value] * len(QUANTILE_LEVELS), 0.0
    mean = sum(value * p for value, p in pairs) / mass
    variance = sum((value - mean) ** 2 * p for value, p in pairs) / mass
    cumulative = list(accumulate(p for _, p in pairs[:-1]))
    quantiles = [pairs[bisect_left(cumulative, level * mass)][0] for level in QUANTILE_LEVELS]
    return min(mean, 1.0), math.sqrt(variance), quantiles, min(mass, 1.0)


def _without_end_of_prompt(text: str, steps: Sequence[Any]) -> str:
    """Return an answer without the empty thought of its prompt, which ms-swift's server writes before the answer.

    One that the model has generated itself is among the tokens of `steps`, and stays.
    """
    repeated = _EMPTY_THOUGHT.match(text)
    if repeated is None or any("think>" in str(step) for step in steps):
        return text
    return text[repeated.end() :]


def checked_url(url: str) -> str:
    """Return the URL of an API unchanged; an `InputError` if it is none of an HTTP server."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port
        is_valid = False
    if not is_valid or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"--endpoint: expected a URL such as http://localhost:8000/v1, found {url!r}")
    return url


def check_key() -> None:
    """Raise `InputError` if the API key in the environment cannot be sent in an HTTP header."""
    key = os.environ.get(_KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{_KEY}: expected printable ASCII characters, found others; is there a line break in it?")


def _data_url(image: Image.Image) -> str:
    """Return the image as lossless PNG, so that the server processes the same pixels as a local processor."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _pool(url: str, size: int) -> PoolManager:
    """Return connections that are kept open, through the proxy that the environment names for the URL."""
    parts = urlsplit(url)
    proxy = None if proxy_bypass(str(parts.hostname)) else getproxies().get(parts.scheme)
    return ProxyManager(proxy, maxsize=size) if proxy else PoolManager(maxsize=size)


def _cause(error: HTTPError) -> str:
    """Return why a server did not answer."""
    cause = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
    return f"{type(cause).__name__}: {_short(str(cause))}"


def _refusal(status: int, data: bytes) -> str:
    """Return why a server refused a request, to be written behind the URL."""
    message = _complaint(data)
    is_path = status == 404 and "model" not in message  # else the server knows no model of this name
    hint = "; the path of the API is missing, which often ends in /v1" if is_path else ""
    return f" answered {status}: {_short(message)}{hint}"


def _complaint(data: bytes) -> str:
    """Return what a server says in refusing a request: OpenAI's `error.message`, or FastAPI's `detail`.

    What FastAPI lists as input is left out, since that may be the whole request.
    """
    try:
        reply = json.loads(data)
        if "detail" not in reply:
            return str(reply["error"]["message"])
        detail = reply["detail"]
        if isinstance(detail, str):
            return detail
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in detail)
    except (KeyError, TypeError, ValueError):
        return data.decode(errors="replace")


def _refused_fields(data: bytes) -> frozenset[str]:
    """Return the optional fields that a refusal names; the most likely tokens go with the log-probabilities."""
    words = set(re.findall(r"\w+", _complaint(data)))
    named = words.intersection(_OPTIONAL)
    return frozenset(named | {"top_logprobs"} if "logprobs" in named else named)


def _error(reason: str) -> dict[str, Any]:
    return {"text": None, "finish_reason": "error", "error": reason}


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
