"""Takes checkpoint folders and recipes for tensors; gives headers, rows and a complete new checkpoint folder."""
