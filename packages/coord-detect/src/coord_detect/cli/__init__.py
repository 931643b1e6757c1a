"""The command line of `coord-detect`."""
