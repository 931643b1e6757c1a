#!/bin/sh
# The specification's name of the merge: merge_coord.sh BASE ADAPTER OUT [options of the exporter's merge]
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
exec uv run --quiet --project "$root" "$root/apps/exporter" merge "$@"
