"""Images a second of `predict --endpoint` against a bare client that sends the same requests, prepared beforehand.

    uv run python apps/trainer/benchmarks/served.py MODEL IMAGES URL [URL ...] [--name boxes] [--concurrency 1 8 32]

Both ask in turn, in `--rounds`; a row has the medians. What a call of `predict` takes that finds all answers there is
told apart, and does not count. With `--instant` a server in a process of its own, which answers at once what the first
URL answered to the first image, shows the most that the client can ask for.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from coord_detect.detection.command import answer_request
from coord_detect.served.request import Request
from coord_trainer.config.run_config import load_run_config


def server_of(reply_of, bodies: list[bytes]) -> ThreadingHTTPServer:
    """Return a server on the loopback that answers `reply_of(request body)` and keeps the bodies."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            reply = reply_of(bodies[-1])
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(reply)}\r\n\r\n"
            self.wfile.write(head.encode() + reply)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 128

    return Server(("127.0.0.1", 0), Handler)


def url_of(server: ThreadingHTTPServer) -> str:
    """Return the URL of the API."""
    return f"http://127.0.0.1:{server.server_port}/v1"


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

    def predict(urls, concurrency) -> tuple[float, float]:
        """Return the seconds of a call that asks for all answers, and of one that finds them there."""
        seconds = []
        with tempfile.TemporaryDirectory() as out:
            for _ in range(2):
                start = time.perf_counter()
                request = Request(options.model, (str(options.images),), Path(out) / "out", endpoints=tuple(urls),
                                  served_name=options.name, concurrency=concurrency, draw=False)  # fmt: skip
                answer_request(request, config)
                seconds.append(time.perf_counter() - start)
        return seconds[0], seconds[1]

    empty = {"id": "1", "object": "chat.completion", "created": 0, "model": options.name}
    empty["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}]
    bodies: list[bytes] = []
    recording = server_of(lambda body: json.dumps(empty).encode(), bodies)
    threading.Thread(target=recording.serve_forever, daemon=True).start()
    predict([url_of(recording)], 1)
    first = post(options.urls[0], bodies[0])
    columns = ("server", "requests at once", "predict, images/s", "bare client, images/s", "ratio", "start and end, s")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")

    def measure(kind, urls):
        def bare(concurrency) -> float:
            start = time.perf_counter()
            with ThreadPoolExecutor(concurrency) as pool:
                list(pool.map(lambda numbered: post(urls[numbered[0] % len(urls)], numbered[1]), enumerate(bodies)))
            return time.perf_counter() - start

        for concurrency in options.concurrency:
            seconds = [(*predict(urls, concurrency), bare(concurrency)) for _ in range(options.rounds)]
            asked, rest, bare_asked = map(statistics.median, zip(*seconds, strict=True))
            ours, theirs = len(bodies) / (asked - rest), len(bodies) / bare_asked
            print(
                f"| {kind} | {concurrency} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} | {rest:.1f} |", flush=True
            )

    measure(f"{len(options.urls)} server(s)", options.urls)
    if options.instant:
        server = server_of(lambda body: first, [])
        multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True).start()
        measure("instant", [url_of(server)])


if __name__ == "__main__":
    main()
