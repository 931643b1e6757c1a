"""Trains on two hosts, which are network namespaces of this machine, as the guide for several nodes says.

    python benchmarks/two_hosts.py [normal other-data killed slurm] [--out DIR]

Needs root, iproute2 and util-linux. Each host has its own name, address and loopback; they share files, and reach each
other through one virtual cable. Runs are tiny, on the CPU. `other-data` gives the second host other annotations, which
has to be refused by name; `killed` ends the second host without a signal that a process could handle, then the same
command with `run.resume=true` has to finish the run; `slurm` starts as the batch script of the guide does, with
SLURM's environment variables.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).parents[1]
HOSTS = {"node-a": "10.77.0.1", "node-b": "10.77.0.2"}
TRAIN = ["custom.coord_soft_ce_w1.enabled=true", "evaluation.images=none", "run.threads=1", "training.report_to=[]"]
TRAIN += [
    "model.tiny.hidden=32",
    "model.tiny.heads=4",
    "model.tiny.ffn=48",
    "model.tiny.layers=2",
    "training.logging_steps=1",
]
TRAIN += ["data.markers=obj", "training.per_device_train_batch_size=2", "training.gradient_accumulation_steps=1"]
Try = StrEnum("Try", {name: name for name in ("normal", "other-data", "killed", "slurm")})


def run(*words: str) -> None:
    subprocess.run(words, check=True)


@contextmanager
def two_hosts():
    """Create both hosts and the cable between them; they are removed at the end."""
    names = "\n".join(["127.0.0.1 localhost", *(f"{address} {name}" for name, address in HOSTS.items())])
    try:
        run("ip", "link", "add", "coord-a", "type", "veth", "peer", "name", "coord-b")
        for name, address in HOSTS.items():
            cable = f"coord-{name[-1]}"
            run("ip", "netns", "add", name)
            run("ip", "link", "set", cable, "netns", name)
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", cable)
            run("ip", "-n", name, "link", "set", cable, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            folder = Path("/etc/netns") / name  # bound over /etc inside the namespace
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(names + "\n")
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "delete", name], check=False)
            (Path("/etc/netns") / name / "hosts").unlink(missing_ok=True)
            if (folder := Path("/etc/netns") / name).is_dir():
                folder.rmdir()


def start(host: str, words: list[str], log: Path, **environment: str) -> subprocess.Popen:
    """Start a command on a host, in a process group of its own."""
    inside = ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]
    given = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environment
    with log.open("w") as file:
        return subprocess.Popen(
            [*inside, *words], cwd=ROOT, env=given, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )


def torchrun(folder: Path, name: str, *settings: str) -> list[str]:
    """Return the guide's command for several nodes, with one process on each."""
    job = ["--rdzv_id", name, "--rdzv_backend", "c10d", "--rdzv_endpoint", "node-a:29500"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "1", *job]
    return [*command, str(ROOT / "apps/trainer"), "train", *TRAIN, f"run.dir={folder / 'run'}", *settings]


def finish(processes: dict[str, subprocess.Popen], seconds: int) -> dict[str, int | None]:
    """Wait for both hosts; returns exit codes, None for one that had to be stopped."""
    codes: dict[str, int | None] = {}
    end = time.monotonic() + seconds
    for host, process in processes.items():
        try:
            codes[host] = process.wait(max(end - time.monotonic(), 1))
        except subprocess.TimeoutExpired:  # noqa: PERF203
            end_host(host, process)
            codes[host] = None
    return codes


def end_host(host: str, process: subprocess.Popen) -> None:
    """End everything on a host, as when its power fails; ranks have sessions of their own."""
    ids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=True).stdout.split()
    for number in map(int, ids):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait()


def tell(folder: Path) -> None:
    """Print the lines of each host's log that say what happened."""
    for log in sorted(folder.glob("*.log")):
        said = [line for line in log.read_text(errors="replace").splitlines() if "rror:" in line or "trained" in line]
        print(f"  {log.stem}: {said[0][:400] if said else '(no line)'}")
    path = folder / "run" / "manifest.json"
    if path.is_file():
        facts = json.loads(path.read_text())
        print(f"  manifest: {facts['status']}, {facts.get('steps')} steps, seconds {facts.get('training_seconds')}")


def normal(folder: Path) -> bool:
    words = torchrun(folder, "normal", "data.shapes.train=16", "data.shapes.heldout=1", "training.max_steps=4")
    codes = finish({host: start(host, words, folder / f"{host}.log") for host in HOSTS}, 400)
    print(f"normal: exit codes {codes}")
    return set(codes.values()) == {0}


def other_data(folder: Path) -> bool:
    from PIL import Image

    processes = {}
    for host in HOSTS:
        own = folder / host  # as a disk of the host's own
        own.mkdir()
        rows = []
        for number in range(4):
            Image.effect_noise((6, 6), 120).resize((96, 96)).convert("RGB").save(own / f"{number}.png")
            box = [0.1, 0.1, 0.5, 0.6 if host == "node-a" else 0.7]
            record = {"image": f"{number}.png", "width": 96, "height": 96, "objects": [{"desc": "car", "bbox": box}]}
            rows.append(json.dumps(record))
        (own / "a.jsonl").write_text("\n".join(rows) + "\n")
        (folder / "data").mkdir(exist_ok=True)
        words = torchrun(folder, "other", "data.annotations=data.jsonl", "data.images=.", "training.max_steps=2")
        mounted = f"mount --bind {own} {folder / 'data'}; cd {folder / 'data'}; cp a.jsonl data.jsonl; "
        inside = ["unshare", "--mount", "sh", "-c", mounted + 'exec "$@"', "sh", *words]
        processes[host] = start(host, inside, folder / f"{host}.log")
    codes = finish(processes, 300)
    print(f"other data: exit codes {codes}")
    return "the ranks do not hold the same" in (folder / "node-a.log").read_text() and 0 not in codes.values()


def killed(folder: Path) -> bool:
    settings = ["data.shapes.train=64", "data.shapes.heldout=1", "training.max_steps=60", "training.save_steps=10"]
    words = torchrun(folder, "killed", *settings)
    processes = {host: start(host, words, folder / f"{host}.log") for host in HOSTS}
    end = time.monotonic() + 400
    while time.monotonic() < end and not list(folder.glob("run/checkpoints/checkpoint-*/complete.json")):
        time.sleep(0.2)
    end_host("node-b", processes["node-b"])
    codes = finish({"node-a": processes["node-a"]}, 300)
    saved = sorted(path.parent.name for path in folder.glob("run/checkpoints/checkpoint-*/complete.json"))
    print(f"killed: node-b killed after {', '.join(saved)}; node-a ends with {codes['node-a']}")
    tell(folder)
    words = torchrun(folder, "resumed", *settings, "run.resume=true")
    again = finish({host: start(host, words, folder / f"{host}-resumed.log") for host in HOSTS}, 400)
    print(f"resumed: exit codes {again}")
    return codes["node-a"] not in (0, None) and set(again.values()) == {0}


def slurm(folder: Path) -> bool:
    """Start as the batch script of the guide: `srun` runs one task on each node, with these variables."""
    words = torchrun(folder, "77", "data.shapes.train=16", "data.shapes.heldout=1", "training.max_steps=2")
    shared = {"SLURM_JOB_ID": "77", "SLURM_NNODES": "2", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "node-[a-b]"}
    # A script may export these for programs without torchrun; they are those of the tasks, not of the ranks.
    shared |= {"MASTER_ADDR": "node-a", "MASTER_PORT": "29501", "SLURM_NTASKS_PER_NODE": "1"}
    processes = {}
    for number, host in enumerate(HOSTS):
        of_task = {"SLURM_PROCID": str(number), "SLURM_LOCALID": "0", "SLURM_NODEID": str(number)}
        processes[host] = start(host, words, folder / f"{host}.log", **shared, **of_task)
    codes = finish(processes, 300)
    print(f"slurm: exit codes {codes}")
    return set(codes.values()) == {0}


def main(
    tries: Annotated[list[Try], typer.Argument(help="all of them if there are none")] = list(Try),  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Keep logs and runs in this folder.")] = None,
) -> None:
    """Run each try, and print what both hosts said."""
    routes = {Try.normal: normal, Try["other-data"]: other_data, Try.killed: killed, Try.slurm: slurm}
    failed = []
    with two_hosts():
        for name in tries:
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=out))
            begun = time.monotonic()
            if not routes[name](folder):
                failed.append(name.value)
            tell(folder)
            print(f"  {time.monotonic() - begun:.0f} s, in {folder}", flush=True)
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
