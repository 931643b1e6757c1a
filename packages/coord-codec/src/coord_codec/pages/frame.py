"""The page itself: heading, contents, style and script in one file that requests nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from coord_codec.pages.elements import safe
from coord_codec.pages.palette import ON_DARK, PALETTE

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1>{facts}</header>
{contents}<main>
{body}
</main>
<script>{script}</script>
</body>
</html>
"""
_SECTION = re.compile(r'<section id="([^"]*)"><details[^>]*><summary><h2>(.*?)</h2>(?:<b>(.*?)</b>)?</summary>')
_LISTED = 3
"""Fewest sections of a page with contents."""


def page(title: str, body: str, style: str = "", facts: Mapping[str, object] | None = None, script: str = "") -> str:
    """Return a complete HTML document.

    Its content security policy allows inline styles, embedded images and the page's own script, and no requests.

    The `body` is inserted unescaped; `facts`, what the page is about, stand below the heading and are plain text
    as it is. Style and script are added to the page's own.
    """
    script = _resource("page.js") + script
    body, contents = _contents(body)
    items = "".join(f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in (facts or {}).items())
    return _PAGE.format(
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=safe(title),
        style=page_style() + style,
        facts=f"<dl>{items}</dl>" if items else "",
        contents=contents,
        body=body,
        script=script,
    )


def page_style() -> str:
    """Return the style sheet of all pages; its colours are variables, for a light and a dark theme."""
    light, dark = ("".join(f"--s{k}:{colour};" for k, colour in enumerate(p)) for p in (PALETTE, ON_DARK))
    series = f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
    labels = "".join(f".c{k}{{--c:{colour}}}" for k, colour in enumerate(PALETTE))
    return f"\n{series}{_resource('colours.css')}{labels}\n{_resource('page.css')}"


def fragment(html: str) -> str:
    """Return a part of a page with the style of all pages, which holds inside it alone, for example in a notebook."""
    style = page_style().replace(":root", "&")
    return f'<div class="coordexp"><style>.coordexp {{{style}}}</style>{html}</div>'


def notes(lines: Sequence[str]) -> str:
    """Return remarks as a list of plain texts; empty without any."""
    items = "".join(f"<li>{safe(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _contents(body: str) -> tuple[str, str]:
    """Give every section a name of its own; return the body and the list of its sections."""
    seen: dict[str, int] = {}
    listed = []

    def named(found: re.Match[str]) -> str:
        name, title, main = found.groups()
        seen[name] = seen.get(name, 0) + 1
        own = name if seen[name] == 1 else f"{name}-{seen[name]}"
        listed.append(f'<li><a href="#{own}">{title}</a>{f" <b>{main}</b>" if main else ""}</li>')
        return found[0].replace(f'id="{name}"', f'id="{own}"', 1)

    body = _SECTION.sub(named, body)
    if len(listed) < _LISTED:
        return body, ""
    return body, f'<nav aria-label="contents"><ul>{"".join(listed)}</ul></nav>\n'


@cache
def _resource(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip() + "\n"
