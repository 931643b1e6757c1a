"""A server of `swift deploy` on the loopback."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "src/coord_trainer/swift/serving.py"


@contextmanager
def deployed(model, log, model_type="qwen3_vl_coord"):
    """Serve `model`, under our name of its family in ms-swift; yields the URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--model", model, "--model_type", model_type, "--external_plugins", PLUGIN]
    words += ["--infer_backend", "transformers", "--torch_dtype", "float32", "--max_logprobs", "20"]
    words += ["--host", "127.0.0.1", "--port", port, "--served_model_name", "tiny"]
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "no_proxy": "127.0.0.1"}
    with log.open("w") as file:
        command = [sys.executable, "-m", "swift.cli.main", "deploy", *map(str, words)]
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=quiet, start_new_session=True)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        until = time.monotonic() + 240
        while True:
            try:
                urllib.request.urlopen(f"{url}/models", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert server.poll() is None and time.monotonic() < until, log.read_text()[-2000:]
                time.sleep(0.5)
        yield url
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)
