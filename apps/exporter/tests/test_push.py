"""`--push` through the hub library's client, against a server of its protocol on the loopback."""

import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from huggingface_hub import constants
from test_cli import call


@pytest.fixture
def hub(monkeypatch):
    """A hub: repositories by name, each with whether it is private and its files. Every file may be sent inline."""
    repositories = {}

    class Hub(BaseHTTPRequestHandler):
        def answer(self, status, content):
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = self.path.strip("/").split("/")
            if parts == ["api", "repos", "create"]:
                wanted = json.loads(body)
                name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
                if name in repositories:
                    return self.answer(409, {"error": "You already created this repo", "url": f"{address}/{name}"})
                repositories[name] = {"private": wanted.get("private", wanted.get("visibility") == "private")}
                return self.answer(200, {"url": f"{address}/{name}", "name": name})
            if len(parts) < 5:  # the client lets the hub check the card
                return self.answer(200, {"errors": [], "warnings": []})
            files = repositories["/".join(parts[2:4])].setdefault("files", {})
            if parts[4] == "preupload":
                asked = [file["path"] for file in json.loads(body)["files"]]
                modes = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in asked]
                return self.answer(200, {"files": modes})
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return self.answer(200, {"commitUrl": f"{address}/me/model/commit/1", "commitOid": "1", "success": True})

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_TOKEN", "of-a-test")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    Thread(target=server.serve_forever, daemon=True).start()
    yield repositories
    server.shutdown()


def merge(capsys, bases, adapters, out, *options):
    return call(capsys, "merge", bases(False), adapters / "offsets", out, "--no-verify", "--quiet", *options)


def test_push_uploads_every_file_to_a_new_private_repository(capsys, hub, bases, adapters, tmp_path):
    code, shown, told = merge(capsys, bases, adapters, tmp_path / "out", "--push", "me/model")
    assert code == 0 and "pushed: http://127.0.0.1" in shown, told
    assert hub["me/model"]["private"] is True
    sent = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {name: data for name, data in hub["me/model"]["files"].items() if name != ".gitattributes"} == sent

    code, _, told = merge(capsys, bases, adapters, tmp_path / "again", "--push", "me/model")
    assert code == 1 and "it exists already; --force adds a commit" in told and "hf upload me/model" in told
    assert (tmp_path / "again" / "config.json").exists()
    assert merge(capsys, bases, adapters, tmp_path / "again", "--push", "me/model", "--force")[0] == 0
    assert merge(capsys, bases, adapters, tmp_path / "open", "--push", "me/open", "--public")[0] == 0
    assert hub["me/open"]["private"] is False


@pytest.mark.parametrize("options", [["--push", "a/b/c"], ["--public"]])
def test_push_refuses_bad_usage_before_anything_is_written(capsys, bases, adapters, tmp_path, options):
    code, _, told = merge(capsys, bases, adapters, tmp_path / "out", *options)
    assert code == 2 and options[0] in told and not list(tmp_path.iterdir())
