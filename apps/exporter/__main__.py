"""Run the exporter from its folder."""

from coord_exporter.cli import main

if __name__ == "__main__":
    main()
