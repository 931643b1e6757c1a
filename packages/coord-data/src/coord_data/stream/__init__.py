"""Instance JSONL and COCO JSON go in, of any size; rows of an Arrow table come out, without objects in between."""
