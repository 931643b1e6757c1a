"""Takes files or records, returns ground truth and predictions as arrays and frozen records."""
