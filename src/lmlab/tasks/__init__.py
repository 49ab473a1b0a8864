"""Tasks: objectives over labelled examples, each with a head and its metrics."""
