#!/bin/sh
# The specification's name; merging is a command of the exporter.
echo "error: merging lives in the exporter: uv run apps/exporter merge BASE ADAPTER OUT (see docs/guides/export.md)" >&2
exit 2
