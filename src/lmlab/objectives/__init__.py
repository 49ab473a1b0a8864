"""Pre-training variants: an objective makes blanks, the model fills them."""
