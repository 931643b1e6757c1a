"""Formats of annotations: a file or folder goes in, what it states about each image comes out, one format a file.

COCO JSON and instance JSONL are the codec's; the other formats are turned into instances by `collect`.
"""
