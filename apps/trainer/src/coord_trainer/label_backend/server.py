"""The server: what Label Studio asks of an ML backend, with Python's own HTTP server.

It listens on the loopback only, unless told otherwise. A page in a browser cannot use it: requests have to be JSON by
their content type, and on the loopback their `Host` has to be this machine.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from coord_codec import InputError
from coord_codec.counts import counted
from coord_eval.labelling import labelstudio_prediction
from coord_trainer.answers.detector import Detector
from coord_trainer.checkpoints import weight_files
from coord_trainer.console import say
from coord_trainer.label_backend.images import TaskImages
from coord_trainer.label_backend.labelling import Labelling

_MOST_BYTES = 256 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class LabelBackend:
    """Answers the requests of Label Studio.

    Args:
        detector: finds the objects
        images: where the images of tasks may lie
    """

    def __init__(self, detector: Detector, images: TaskImages) -> None:
        self._detector, self._images = detector, images
        self._lock = Lock()  # one batch at a time; `health` must answer within a second meanwhile
        self.version = model_version(detector)
        shape = detector.config.data.shape
        self._control = "rectanglelabels"
        if not shape.is_box:
            self._control = "polygonlabels" if shape.closed else "keypointlabels"

    def routes(self) -> dict[tuple[str, str], Callable[[Mapping[str, Any]], dict[str, Any]]]:
        """Return the function of each method and path."""
        return {
            ("GET", "/"): self.health,
            ("GET", "/health"): self.health,
            ("GET", "/versions"): lambda _: {"versions": [self.version]},
            ("POST", "/setup"): self.setup,
            ("POST", "/validate"): self.setup,
            ("POST", "/predict"): self.predict,
            ("POST", "/webhook"): self.webhook,
            ("POST", "/train"): self.webhook,
            ("POST", "/delete"): lambda _: {},
        }

    def health(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Say that the server is up."""
        return {"status": "UP", "model_class": type(self._detector).__name__}

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Check the project's labelling configuration, which `schema` or `config` holds.

        Raises:
            InputError: it has no control for the model's shapes
        """
        schema = request.get("schema") or request.get("config")
        if schema:
            Labelling.read(str(schema), self._control)
        return {"model_version": self.version}

    def webhook(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Accept an event; nothing is trained here."""
        if (action := str(request.get("action", "train"))) in ("START_TRAINING", "train"):
            say("Label Studio asks for training: export its annotations and train with uv run apps/trainer train")
        return {"status": "ignored", "action": action}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a prediction for each task; one whose image cannot be opened gets an empty one, and a line is printed.

        Raises:
            InputError: the request has no tasks, or the configuration no control for the model's shapes
        """
        tasks = request.get("tasks")
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise InputError("tasks: expected a list of tasks")
        labelling = Labelling.read(str(request.get("label_config") or ""), self._control)
        batch = self._detector.config.evaluation.batch_size
        results = []
        for start in range(0, len(tasks), batch):
            results += self._batch(tasks[start : start + batch], labelling)
        return {"results": results, "model_version": self.version}

    def _batch(self, tasks: list[dict[str, Any]], labelling: Labelling) -> list[dict[str, Any]]:
        opened: dict[int, Any] = {}
        for place, task in enumerate(tasks):
            try:
                opened[place] = self._open(task, labelling)
            except InputError as error:  # noqa: PERF203 - the other tasks are answered
                say(f"task {task.get('id')}: {error}")
        with self._lock:
            answers = self._detector.answers(list(opened.values()))
        found = [{"model_version": self.version, "score": 0.0, "result": []} for _ in tasks]
        unknown = 0
        for (place, image), answer in zip(opened.items(), answers, strict=True):
            if answer["finish_reason"] == "error":
                say(f"task {tasks[place].get('id')}: {answer.get('error')}")
                continue
            facts = {"image": "image", "width": image.width, "height": image.height}
            objects = [item.to_record() for item in self._detector.read({**facts, **answer})]
            known = [one for one in objects if not labelling.labels or one["desc"] in labelling.labels]
            unknown += len(objects) - len(known)
            names = (self.version, labelling.from_name, labelling.to_name)
            found[place] = labelstudio_prediction({**facts, "objects": known}, *names)
        if unknown:
            say(f"{counted(unknown, 'box', 'boxes')} left out, with labels that the project does not have")
        return found

    def _open(self, task: Mapping[str, Any], labelling: Labelling) -> Any:
        data = task.get("data")
        named = data.get(labelling.key) if isinstance(data, dict) else None
        if not isinstance(named, str):
            raise InputError(f"data.{labelling.key}: expected the image's address, found {named!r:.80}")
        return self._images.open(named)


def model_version(detector: Detector) -> str:
    """Return a name that changes with the model's weights and settings, since Label Studio keeps answers by it."""
    folder = Path(detector.engine.name)
    finish = detector.finish
    settings = [weight_files(folder), detector.config.model_dump(mode="json"), finish.threshold.value]
    calibration = finish.calibration and finish.calibration.rests_on
    digest = zlib.crc32(json.dumps([*settings, calibration], sort_keys=True, default=str).encode())
    return f"{folder.name}-{digest:08x}"


class _Handler(BaseHTTPRequestHandler):
    server_version = "coordexp"
    sys_version = ""
    timeout = 60

    def __init__(self, backend: LabelBackend, *args: Any) -> None:
        self._routes = backend.routes()
        super().__init__(*args)

    def do_GET(self) -> None:
        self._reply("GET", lambda: {})

    def do_POST(self) -> None:
        self._reply("POST", self._body)

    def _reply(self, method: str, body: Callable[[], Mapping[str, Any]]) -> None:
        path = self.path.partition("?")[0]
        route = self._routes.get((method, path.rstrip("/") or "/"))
        if not self._is_meant():
            self._send(403, {"error": "Host: expected the address that this server listens on"})
        elif route is None:
            self._send(404, {"error": f"{method} {path[:80]}: no such request"})
        else:
            try:
                self._send(201 if path == "/webhook" else 200, route(body()))
            except InputError as error:
                say(f"{path}: {error}")
                self._send(400, {"error": str(error)})

    def _is_meant(self) -> bool:
        """Return whether the request names this server; on the loopback a page of another name must not."""
        host = (self.headers.get("Host") or "").rpartition("@")[2]
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        return self.server.server_address[0] not in _LOOPBACK or name.strip("[]").lower() in _LOOPBACK

    def _body(self) -> Mapping[str, Any]:
        """Return the body of the request.

        Raises:
            InputError: it is too large, or no JSON object
        """
        if self.headers.get_content_type() != "application/json":
            raise InputError(f"Content-Type: expected application/json, found {self.headers.get_content_type()}")
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            self.close_connection = True
            raise InputError(f"Content-Length: expected at most {_MOST_BYTES:,} bytes, found {length or 'none'}")
        try:
            content = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise InputError(f"the request is no JSON ({error})") from None
        if not isinstance(content, dict):
            raise InputError(f"the request: expected a JSON object, found {type(content).__name__}")
        return content

    def _send(self, status: int, content: Mapping[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Print nothing for a request."""


def open_server(backend: LabelBackend, host: str, port: int) -> ThreadingHTTPServer:
    """Return the server, which listens but does not answer yet.

    Raises:
        InputError: it cannot listen on that address and port
    """
    try:
        return ThreadingHTTPServer((host, port), partial(_Handler, backend))
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--host {host} --port {port}: {reason}; choose others") from None


def serve(detector: Detector, images: TaskImages, host: str, port: int) -> None:
    """Serve until Ctrl-C.

    Raises:
        InputError: it cannot listen on that address and port
    """
    backend = LabelBackend(detector, images)
    server = open_server(backend, host, port)
    say(f"http://{host}:{server.server_port} is the ML backend, model version {backend.version} (Ctrl-C ends it)")
    if host not in _LOOPBACK:
        say("  it listens beyond this machine, and asks nobody for a password")
    with server:
        server.serve_forever()
