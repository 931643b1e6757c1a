"""What Label Studio asks of an ML backend, with an engine that answers by rule."""

import base64
import http.client
import io
import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "detect"))

from fakes import BOX, RuleEngine, detector

from coord_codec import InputError
from coord_trainer.label_backend.images import KEY, TaskImages
from coord_trainer.label_backend.server import LabelBackend, open_server

CONFIG = (
    '<View><Image name="photo" value="$url"/><RectangleLabels name="boxes" toName="photo">'
    '<Label value="cat"/><Label value="dog"/></RectangleLabels></View>'
)


def png(size=(40, 20)):
    buffer = io.BytesIO()
    Image.new("RGB", size, "grey").save(buffer, "PNG")
    return buffer.getvalue()


@contextmanager
def serving(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class Engine(RuleEngine):
    """As in `detect`, whatever the question."""

    max_pixels = None

    def answer(self, images, prompt=None, pixels=1.0):
        return super().answer(images)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    (folder / "images").mkdir()
    (folder / "images" / "a b.png").write_bytes(png())
    (folder / "secret.png").write_bytes(png())
    return folder


@pytest.fixture(scope="module")
def port(folder):
    backend = LabelBackend(detector(Engine()), TaskImages.of(folder / "images", None))
    with serving(open_server(backend, "127.0.0.1", 0)) as port:
        yield port


def ask(port, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = ({"Content-Type": "application/json"} if body is not None else {}) | headers
    connection.request(method, path, data, sent)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def test_health_setup_and_webhook_are_answered(port):
    status, health = ask(port, "GET", "/health")
    assert status == 200 and health["status"] == "UP"
    status, setup = ask(port, "POST", "/setup", {"project": "1.2", "schema": CONFIG, "hostname": "http://x"})
    assert status == 200 and setup["model_version"].startswith("rule-")
    assert ask(port, "GET", "/versions")[1] == {"versions": [setup["model_version"]]}
    assert ask(port, "POST", "/webhook", {"action": "ANNOTATION_CREATED"})[0] == 201


def test_tasks_get_boxes_in_percent_in_the_names_of_the_project(port):
    names = ["/data/local-files/?d=a%20b.png", "a b.png", "data:image/png;base64," + base64.b64encode(png()).decode()]
    tasks = [{"id": number, "data": {"url": name}} for number, name in enumerate([*names, "gone.png", 3])]
    status, reply = ask(port, "POST", "/predict", {"tasks": tasks, "label_config": CONFIG})
    assert status == 200 and len(reply["results"]) == len(tasks)
    for result in reply["results"][:3]:
        (region,) = result["result"]
        x1, y1, x2, y2 = BOX
        value = {"x": 100 * x1, "y": 100 * y1, "width": 100 * (x2 - x1), "height": 100 * (y2 - y1), "rotation": 0}
        assert region["value"].pop("rectanglelabels") == ["cat"]
        assert region["value"] == pytest.approx(value)
        assert (region["from_name"], region["to_name"], region["type"]) == ("boxes", "photo", "rectanglelabels")
        assert (region["original_width"], region["original_height"]) == (40, 20)
    assert [result["result"] for result in reply["results"][3:]] == [[], []]


def test_labels_that_the_project_lacks_are_left_out(port):
    config = CONFIG.replace("cat", "bird")
    reply = ask(port, "POST", "/predict", {"tasks": [{"data": {"url": "a b.png"}}], "label_config": config})[1]
    assert reply["results"][0]["result"] == []


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/predict", {"tasks": 3, "label_config": CONFIG}, {}, 400),
        ("/predict", {"tasks": [], "label_config": "<View/>"}, {}, 400),
        ("/predict", {"tasks": [], "label_config": '<!DOCTYPE a [<!ENTITY b "c">]><View>&b;</View>'}, {}, 400),
        ("/predict", b"{", {}, 400),
        ("/predict", b"[]", {}, 400),
        ("/setup", {"schema": "<View"}, {}, 400),
        ("/setup", {}, {"Content_Type": "text/plain"}, 400),
        ("/setup", {}, {"Host": "evil.example"}, 403),
        ("/nothing", {}, {}, 404),
    ],
)
def test_bad_requests_are_refused(port, path, body, headers, status):
    found, reply = ask(port, "POST", path, body, **headers)
    assert found == status and reply["error"]


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("../secret.png", "not below the folder"),
        ("/data/local-files/?d=../secret.png", "not below the folder"),
        ("/data/local-files/?d=/etc/passwd", "no such file"),
        ("/etc/passwd", "start this server with --label-studio"),
        ("file:///etc/passwd", "from --images and --label-studio alone"),
        ("http://169.254.169.254/latest", "from --images and --label-studio alone"),
        ("data:image/png;base64,%%%", "not base64"),
        ("data:image/png;base64,QUJD", "no image"),
    ],
)
def test_images_elsewhere_are_not_opened(folder, named, told):
    with pytest.raises(InputError, match=told):
        TaskImages.of(folder / "images", None).open(named)


def test_images_are_fetched_from_label_studio_alone_and_without_redirects(monkeypatch):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Authorization")))
            moved = self.path == "/moved"
            self.send_response(302 if moved else 200)
            if moved:
                self.send_header("Location", "/data/upload/1/a.png")
            self.end_headers()
            self.wfile.write(b"" if moved else png())

        def do_POST(self):
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, given))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"access": "short"}')

        def log_message(self, *_):
            pass

    monkeypatch.setenv(KEY, "secret")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        images = TaskImages.of(None, f"http://127.0.0.1:{port}")
        assert images.open("/data/upload/1/a.png").size == (40, 20)
        assert images.open(f"http://127.0.0.1:{port}/data/upload/1/a.png").size == (40, 20)
        assert asked == [("/data/upload/1/a.png", "Token secret")] * 2
        with pytest.raises(InputError, match="redirects, which is not followed"):
            images.open("/moved")
        for elsewhere in (f"http://127.0.0.1:{port + 1}/a", f"//localhost:{port}/a", f"http://a@127.0.0.1:{port}/a"):
            with pytest.raises(InputError, match="alone"):
                images.open(elsewhere)
        assert len(asked) == 3
        monkeypatch.setenv(KEY, "a.b.c")
        assert images.open("/data/upload/1/a.png").size == (40, 20)
        assert asked[3:] == [("/api/token/refresh/", {"refresh": "a.b.c"}), ("/data/upload/1/a.png", "Bearer short")]


@pytest.mark.parametrize("host", ["ftp://a", "localhost:8080", "http://", "http://a:b"])
def test_address_of_label_studio_is_checked(host):
    with pytest.raises(InputError, match="--label-studio"):
        TaskImages.of(None, host)
