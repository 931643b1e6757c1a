"""Large annotation files go in; records that are checked once and then memory-mapped from an Arrow file come out."""
