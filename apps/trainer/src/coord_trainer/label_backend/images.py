"""Opens the image that a task of Label Studio names, from two places only: a folder, and Label Studio itself.

A task says where its image is, and whoever writes tasks must not make this server read other files or ask other hosts.
So a path is opened below the given folder alone, an address is fetched from Label Studio's own alone, no redirect is
followed, and the token is sent nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, unquote, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from PIL import Image

from coord_codec import InputError
from coord_trainer.answers.detector import open_image

KEY = "LABEL_STUDIO_API_KEY"
"""Environment variable with a token for Label Studio: a personal access token, or a legacy one."""
_MOST_BYTES = 256 << 20
_SECONDS = 30
_LOCAL_FILES = "/data/local-files/"
_REFRESH = "/api/token/refresh/"


@dataclass(frozen=True)
class TaskImages:
    """Where the images of tasks may lie.

    Attributes:
        folder: the folder of local files, resolved; None for none
        host: address of Label Studio, `http://127.0.0.1:8080`; None for none
    """

    folder: Path | None = None
    host: str | None = None

    @classmethod
    def of(cls, folder: Path | None, host: str | None) -> TaskImages:
        """Return the places that the command line names.

        Raises:
            InputError: there is no such folder, the address is none, or the token cannot be sent
        """
        if folder is not None and not folder.is_dir():
            raise InputError(f"--images {folder}: expected a folder of images, found none")
        if host is not None and _origin(host) is None:
            raise InputError(f"--label-studio: expected an address such as http://127.0.0.1:8080, found {host!r}")
        token = os.environ.get(KEY, "")
        if not (token.isascii() and token.isprintable()):
            raise InputError(f"{KEY}: expected printable ASCII characters, found others; is there a line break in it?")
        return cls(folder.resolve() if folder is not None else None, host and host.rstrip("/") + "/")

    def open(self, named: str) -> Image.Image:
        """Return the image that a task names, upright and RGB.

        Args:
            named: a `data:` URL, a path below the folder, a path of Label Studio, or an address there

        Raises:
            InputError: it is elsewhere, missing, or no image
        """
        if named.startswith("data:"):
            return _decoded(_of_data_url(named), "the image in the task")
        parts = urlsplit(named)
        if parts.path == _LOCAL_FILES and (not parts.netloc or self._is_host(named)) and self.folder is not None:
            path = next(iter(parse_qs(parts.query).get("d", ())), "")
            return open_image(self._file(path))
        is_path = not parts.scheme and not parts.netloc
        if is_path and not named.startswith("/") and self.folder is not None:
            return open_image(self._file(unquote(named)))
        if self.host is None:
            raise InputError(
                f"{named[:200]}: the image is at Label Studio; start this server with --label-studio URL"
                if is_path
                else f"{named[:200]}: images are opened from --images and --label-studio alone"
            )
        address = urljoin(self.host, named)
        if not self._is_host(address):
            raise InputError(f"{named[:200]}: images are fetched from {self.host} alone (--label-studio)")
        return _decoded(_fetch(address, self.host), named[:200])

    def _is_host(self, address: str) -> bool:
        return self.host is not None and _origin(address) == _origin(self.host)

    def _file(self, name: str) -> Path:
        """Return the path of a file below the folder.

        Raises:
            InputError: it is not below it, or missing
        """
        assert self.folder is not None
        path = (self.folder / name.lstrip("/")).resolve()
        if not path.is_relative_to(self.folder):
            raise InputError(f"{name[:200]}: it is not below the folder of --images")
        if not path.is_file():
            raise InputError(f"{name[:200]}: no such file below the folder of --images")
        return path


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the HTTP error of the redirect is raised instead."""


def _origin(address: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an address of the web; None if it is none, or has a user's name in it."""
    try:
        parts = urlsplit(address)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return None
    return parts.scheme, parts.hostname, port


def _fetch(address: str, host: str) -> bytes:
    token = os.environ.get(KEY, "")
    header = {}
    if token.count(".") == 2:  # a personal access token, which gives tokens for some minutes
        exchange = json.dumps({"refresh": token}).encode()
        content = _ask(Request(urljoin(host, _REFRESH), exchange, {"Content-Type": "application/json"}))
        try:
            header = {"Authorization": f"Bearer {json.loads(content)['access']}"}
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{urljoin(host, _REFRESH)}: expected an access token in the answer, found none") from None
    elif token:
        header = {"Authorization": f"Token {token}"}
    return _ask(Request(address, headers=header))


def _ask(request: Request) -> bytes:
    address = request.full_url[:200]
    try:
        with build_opener(_NoRedirects, ProxyHandler({})).open(request, timeout=_SECONDS) as response:
            content: bytes = response.read(_MOST_BYTES + 1)
    except HTTPError as error:
        hint = ""
        if error.code in (401, 403):
            hint = f"; give a token of Label Studio in {KEY}"
        elif 300 <= error.code < 400:
            hint = "; it redirects, which is not followed: give Label Studio the images as local files or uploads"
        raise InputError(f"{address}: Label Studio answers {error.code}{hint}") from None
    except (URLError, OSError) as error:
        raise InputError(f"{address}: it cannot be fetched: {getattr(error, 'reason', error)}") from None
    if len(content) > _MOST_BYTES:
        raise InputError(f"{address}: expected at most {_MOST_BYTES >> 20} MB")
    return content


def _of_data_url(url: str) -> bytes:
    head, _, content = url.partition(",")
    if not head.endswith(";base64"):
        raise InputError(f"{head[:80]}: expected a data: URL in base64")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{head[:80]}: its content is not base64") from None


def _decoded(content: bytes, name: str) -> Image.Image:
    try:
        return open_image(Image.open(io.BytesIO(content)))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{name}: no image ({error})") from None
