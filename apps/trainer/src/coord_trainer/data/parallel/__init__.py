"""Jobs go in; they run in a pool of processes, or in one process beside this one, and their results come out."""
