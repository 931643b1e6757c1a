"""Servers on the loopback, which a test starts, kills and starts again: `vllm serve`, and llama.cpp's."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SECONDS = 400
"""The longest that a server may take to start, on a busy machine."""


class Server:
    """A server of one model; it is stopped when the block ends.

    Args:
        log: the file of its output
    """

    command = ()
    variables = None

    def __init__(self, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{self.port}/v1", log

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Start the server and wait until it answers."""
        with self.log.open("a") as file:
            self.process = subprocess.Popen(
                self.command, stdout=file, stderr=subprocess.STDOUT, env=self.variables, start_new_session=True
            )
        until = time.monotonic() + _SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise AssertionError(self.log.read_text()[-3000:])
            time.sleep(0.5)

    def answers(self):
        """Return whether the server answers."""
        try:
            urllib.request.urlopen(f"{self.url}/models", timeout=5).close()
        except (urllib.error.URLError, OSError):
            return False
        return True

    def stop(self, sent=signal.SIGTERM):
        """End the server and all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        with suppress(ProcessLookupError):  # also what the first process has left behind
            os.killpg(self.process.pid, signal.SIGKILL)


class Vllm(Server):
    """`vllm serve` of a model under the name `boxes`.

    Args:
        environment: the folder of vLLM's environment
        model: the model's folder
        log: the file of its output
        words: further options of `vllm serve`
        variables: further environment variables
    """

    def __init__(self, environment, model, log, *words, **variables):
        super().__init__(log)
        self.command = [environment / "bin" / "vllm", "serve", model, "--served-model-name", "boxes"]
        self.command += ["--host", "127.0.0.1", "--port", str(self.port), "--dtype", "float32", "--enforce-eager"]
        self.command += ["--max-logprobs", "20", "--limit-mm-per-prompt", '{"image": 1}']
        self.command += ["--structured-outputs-config.backend", "guidance", "--max-num-seqs", "32", *words]
        self.variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        self.variables |= {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self.variables |= {"VLLM_NO_USAGE_STATS": "1", "CUDA_VISIBLE_DEVICES": "", "no_proxy": "127.0.0.1"}
        self.variables |= {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", **variables}

    def metric(self, name):
        """Return the value of a counter of the server."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


class LlamaCpp(Server):
    """The server of llama.cpp, as xllamacpp builds it in.

    Args:
        python: of its environment
        model: the files of the language model and of the vision tower
        log: the file of its output
        special: whether it writes control tokens (`--special`)
    """

    def __init__(self, python, model, log, special):
        super().__init__(log)
        script = Path(__file__).with_name("llama_server.py")
        self.command = [python, script, *model, str(self.port), *(["--special"] if special else [])]
