"""The engine of a run: one thread that owns the model and generates sequences in a batch."""
