"""Cells and neurons: their activations over a text, and the search for those that detect a property."""
