"""Baselines: what a fine-tuned model must beat."""
