"""Large annotation files go in; checked records in an Arrow file come out."""
