"""The training procedure: budgets, optimizers, schedules, the loop, and what it costs."""
