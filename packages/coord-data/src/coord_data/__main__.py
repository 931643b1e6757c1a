"""`python -m coord_data` and the `coord-data` command."""

import sys

try:
    from coord_data.cli import main
except KeyboardInterrupt:  # from here on the command line answers an interrupt itself
    sys.exit(130)

if __name__ == "__main__":
    main()
