"""`python -m coord_data`: the same as the `coord-data` command."""

from coord_data.cli import main

main()
