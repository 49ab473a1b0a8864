"""What `lmlab evaluate` prints, by what a run does: one file for each kind of scores."""
