"""Facts as data files, each number with its source; loaded once."""
