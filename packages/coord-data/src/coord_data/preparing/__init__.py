"""`prepare`: which images are written, and where."""
