"""The pieces that the report is made of, for pages of your own.

A page is one file without scripts that fetches nothing: whatever a model or a file said goes through :func:`safe`,
photographs lie inside it.

Example:
    >>> print(page("Two runs", section("AP", table(("run", "AP"), [("<base>", number(0.5))])))[:15])
    <!doctype html>
"""

from coord_eval.html_text import safe
from coord_eval.pictures import overlay
from coord_eval.report_style import page
from coord_eval.report_tables import number, section, table

__all__ = ["number", "overlay", "page", "safe", "section", "table"]
