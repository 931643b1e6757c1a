"""Readers of annotation formats, one per file: a file or folder goes in, images with their stated boxes come out.

COCO JSON and instance JSONL are read by `coord_codec`; `collect` turns the other formats into instances.
"""
