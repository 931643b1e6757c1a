"""An engine that answers by rule, and a server that speaks OpenAI's protocol as well or as badly as it is told."""

import json
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image

from coord_codec import Object, encode_target
from coord_codec.records import Instance
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.detection.session import answer_sources
from coord_detect.model.card import OF_DATA, GridSize, ModelCard
from coord_detect.settings.load import load_settings
from coord_detect.settings.record import Settings

BOX = (0.25, 0.5, 0.75, 0.875)
SETTINGS = {"model": "rule", "prompt": "p"}
TEXT = encode_target(Instance(image="x", objects=[Object(desc="cat", bbox=BOX)]))


@dataclass
class RuleEngine:
    """Says that there is a cat in the same place of every image; raises after so many batches."""

    name: str = "rule"
    max_new_tokens: int = 64
    concurrency: int = 0
    batches: list = field(default_factory=list)
    stop_after: int | None = None

    def answer(self, images):
        if self.stop_after is not None and len(self.batches) >= self.stop_after:
            raise KeyboardInterrupt
        self.batches.append([image.size for image in images])
        return [{"text": TEXT, "finish_reason": "stop"} for _ in images]


class BusyEngine(RuleEngine):
    """Has no answer to any image."""

    def answer(self, images):
        return [{"text": None, "finish_reason": "error", "error": "busy"} for _ in images]


def detector(engine=None, *words):
    return AnsweringModel(engine or RuleEngine(), load_settings(Settings, None, words)[0])


def card_of(settings=None, **stated):
    """Return the card of a model that was trained with these settings."""
    settings = settings or Settings()
    named = {name: getattr(settings.data, name) for name in OF_DATA}
    named |= {
        "form": "tokens",
        "decoding": settings.evaluation.decoding[0].name,
        "grid": GridSize(bins=1000, scale=1000),
    }
    return ModelCard(**named | stated)


def answered(ready, sources, folder, settings, **options):
    """Answer into a folder, and leave it."""
    with answer_sources(ready, sources, folder, settings, batch=2, **options) as found:
        return found


def answer(folder, sources, engine=None, **options):
    """Answer into a folder by an engine, under `SETTINGS`."""
    return answered(detector(engine), sources, folder, SETTINGS, **options)


def lines(folder):
    """Return the records of predictions.jsonl."""
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


def make_images(folder, **sizes):
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in sizes.items():
        Image.new("RGB", size, "grey").save(folder / f"{name}.png")
    return folder


@contextmanager
def served(reply):
    """Serve `reply(number, request) -> (status, body)` on the loopback; yields the URL and the requests."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(request)
            status, body = reply(len(requests), request)
            if status is None:
                self.connection.close()
                return
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            with suppress(ConnectionError):  # a client that gave up is what a test asked for
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()


def chat_reply(text, steps=None, finish_reason="stop"):
    """The body of a chat completion; `steps` are (token, log-probability, {other token: log-probability})."""
    logprobs = None
    if steps is not None:
        content = [
            {
                "token": token,
                "logprob": log_p,
                "bytes": None,
                "top_logprobs": [{"token": t, "logprob": p, "bytes": None} for t, p in {token: log_p, **top}.items()],
            }
            for token, log_p, top in steps
        ]
        logprobs = {"content": content, "refusal": None}
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "finish_reason": finish_reason, "message": message, "logprobs": logprobs}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
