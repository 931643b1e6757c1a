"""Work goes in; it is shared out to processes, or done beside this one, and its results come out."""
