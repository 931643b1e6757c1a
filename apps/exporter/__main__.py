"""Run the exporter from its folder."""

import sys

try:
    from coord_exporter.cli import main
except KeyboardInterrupt:  # from here on the command line answers an interrupt itself
    sys.exit(130)

if __name__ == "__main__":
    main()
