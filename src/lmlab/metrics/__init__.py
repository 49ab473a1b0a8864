"""How well a model does, beyond its loss: each metric has a direction and is computed over a whole evaluation."""
