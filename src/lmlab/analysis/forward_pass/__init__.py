"""The forward pass of a model over a text, step by step, and where each of its numbers comes from."""
