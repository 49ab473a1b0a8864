"""Baselines without a language model, to compare fine-tuned models with."""
