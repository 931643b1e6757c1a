"""Run the trainer from its folder."""

import sys

try:
    from coord_trainer.cli import main
except KeyboardInterrupt:  # from here on the command line answers an interrupt itself
    sys.exit(130)

if __name__ == "__main__":
    main()
