"""True shapes and those of the answers go in; average precision by what compares them comes out, and its ceiling."""
