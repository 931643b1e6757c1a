"""An evaluation or a comparison in, one HTML file out, without scripts or outside references."""
