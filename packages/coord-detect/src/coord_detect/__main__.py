"""`python -m coord_detect`: the same as the `coord-detect` command."""

from coord_detect.cli.main import main

if __name__ == "__main__":
    main()
