"""Images a second of `predict --endpoint` against a bare client that sends the same requests, prepared beforehand.

    uv run python apps/trainer/benchmarks/served.py MODEL IMAGES URL [URL ...] [--name boxes] [--concurrency 1 8 32]

Both ask in turn, in `--rounds`; a row has the medians. With `--instant` a server in this process, which answers at once
what the first URL answered to the first image, shows the most that the client can ask for.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from coord_trainer.config.run_config import load_run_config
from coord_trainer.detect.command import answer_request
from coord_trainer.detect.request import Request


@contextmanager
def recording(reply_of):
    """Serve `reply_of(request body)` on the loopback; yields the URL and the bodies."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            reply = reply_of(bodies[-1])
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(reply)}\r\n\r\n"
            self.wfile.write(head.encode() + reply)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    finally:
        server.shutdown()


def post(url: str, body: bytes) -> bytes:
    """Send one request over a new connection and return the reply's body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=600)
    connection.request("POST", f"{parts.path}/chat/completions", body, {"Content-Type": "application/json"})
    return connection.getresponse().read()


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--name", default="boxes")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--instant", action="store_true")
    options = parser.parse_args()
    config = load_run_config(None, [], trains=False)

    def predict(urls, concurrency) -> float:
        with tempfile.TemporaryDirectory() as out:
            start = time.perf_counter()
            request = Request(options.model, (str(options.images),), Path(out) / "out", endpoints=tuple(urls),
                              served_name=options.name, concurrency=concurrency, draw=False)  # fmt: skip
            answer_request(request, config)
            return time.perf_counter() - start

    empty = {"id": "1", "object": "chat.completion", "created": 0, "model": options.name}
    empty["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}]
    with recording(lambda body: json.dumps(empty).encode()) as (url, bodies):
        predict([url], 1)
    first = post(options.urls[0], bodies[0])
    rows = []

    def measure(kind, urls):
        def bare(concurrency) -> float:
            start = time.perf_counter()
            with ThreadPoolExecutor(concurrency) as pool:
                list(pool.map(lambda numbered: post(urls[numbered[0] % len(urls)], numbered[1]), enumerate(bodies)))
            return time.perf_counter() - start

        for concurrency in options.concurrency:
            seconds = [(predict(urls, concurrency), bare(concurrency)) for _ in range(options.rounds)]
            ours, theirs = (len(bodies) / statistics.median(column) for column in zip(*seconds, strict=True))
            rows.append(f"| {kind} | {concurrency} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} |")

    measure(f"{len(options.urls)} server(s)", options.urls)
    if options.instant:
        with recording(lambda body: first) as (url, _):
            measure("instant", [url])
    print("| server | requests at once | predict, images/s | bare client, images/s | ratio |\n|---|---|---|---|---|")
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
