"""`uv run apps/trainer`: the first run without arguments, everything else by subcommand."""

from __future__ import annotations

import errno
import os
import sys


def main() -> None:
    """Say something at once, then import what is slow, run, and turn mistakes into one line and an exit code."""
    if os.environ.get("RANK", "0") == "0" and not {"-h", "--help"} & set(sys.argv):
        print("coord-trainer: teaching Qwen3-VL to draw boxes (loading)", flush=True)
    # swift and Hugging Face look these up while importing; no look-up unless a config asks for it.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("LOG_LEVEL", "WARNING")  # of swift's logger while it is imported
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if os.environ.get("RANK", "0") != "0":
        os.environ["TQDM_DISABLE"] = "1"  # one bar is enough
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler looks for a GPU and complains aloud
    from coord_eval import InputError as ScoringInputError

    from .errors import InputError, RunError

    try:
        import torch

        from .commands import app

        # DeepSpeed would otherwise guess, and warn about it on stdout.
        os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
        app()
    except (InputError, ScoringInputError) as error:
        _stop(error, 2)
    except RunError as error:
        _stop(error, 1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _stop(f"{error.filename or 'the disk'}: no space left; free some or choose another place", 1)
    except KeyboardInterrupt:
        _stop("interrupted", 1)


def _stop(message: object, code: int) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(code)
