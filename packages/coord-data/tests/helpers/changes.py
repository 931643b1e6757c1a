"""Changes of a file of which each alone makes stale what is kept of it."""

import os


def change_alone(path, fact):
    """Change one fact of a file."""
    status = path.stat()
    if fact == "gone":
        path.unlink()
    elif fact == "size":
        path.write_bytes(path.read_bytes() + b" ")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
