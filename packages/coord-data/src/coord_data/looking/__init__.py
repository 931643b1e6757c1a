"""Looks at the files of images: what is kept of each, on all cores or machines, in parts that are merged."""
