"""Transfer: fine-tune a run on a task, and compare it with baselines."""
