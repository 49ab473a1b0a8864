"""Transfer: a run learns a task, beside the baselines that make its score believable."""
