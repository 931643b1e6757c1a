"""Page frame and style sheet of the report."""

from __future__ import annotations

from coord_eval.html_text import safe

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""

_STYLE = """
:root { --ink: #1c2430; --soft: #5c6878; --line: #e3e7ec; --card: #ffffff; --page: #f5f7f9; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 28px; margin: 0 0 20px; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 12px; }
p { margin: 0 0 12px; color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 20px 24px;
  margin: 0 0 20px; overflow-x: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px;
  margin: 0 0 20px; }
.tiles div { background: var(--card);
  border: 1px solid var(--line); border-radius: 12px; padding: 14px 18px; }
.tiles span, .tiles small { display: block; color: var(--soft); font-size: 13px; }
.tiles b { font-size: 28px; font-weight: 650; font-variant-numeric: tabular-nums; }
.notes { background: #fff8e6; border: 1px solid #f0dca6; border-radius: 12px; margin: 0 0 20px;
  padding: 12px 18px 12px 36px; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0 0 12px; }
th, td { padding: 5px 14px 5px 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; font-size: 13px; }
td.n, th.n { text-align: right; padding: 5px 0 5px 22px; white-space: nowrap; }
.columns { display: flex; flex-wrap: wrap; gap: 8px 56px; align-items: flex-start; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); gap: 20px; }
figure { margin: 0; min-width: 0; }
figure svg { width: 100%; height: auto; display: block; border-radius: 8px; }
figure text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #fff; }
figure.plot { width: 374px; }
figure text.axis { font: 11px system-ui, sans-serif; fill: #5c6878; }
figcaption { color: var(--soft); font-size: 13px; padding-top: 6px; overflow-wrap: anywhere; }
details { font-size: 13px; color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--page); padding: 10px;
  border-radius: 8px;
  max-height: 240px; overflow-y: auto; }
.legend i { display: inline-block; width: 18px; height: 12px; border: 2px solid;
  margin: 0 5px 0 12px; }
.legend .truth { border-color: #0f766e; border-style: dashed; margin-left: 0; }
.legend .hit { border-color: #2563eb; }
.legend .false { border-color: #dc2626; }
@media print { body { background: #fff; } section, .tiles div { break-inside: avoid; } }
"""


def page(title: str, body: str, style: str = "") -> str:
    """Return a whole HTML document.

    Its policy lets a browser show inline styles and pictures inside the file, run nothing and fetch nothing.

    Args:
        title: Heading, plain text.
        body: HTML, taken as it is.
        style: CSS added to the report's own.
    """
    return _PAGE.format(title=safe(title), style=_STYLE + style, body=body)
