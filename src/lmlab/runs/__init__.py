"""Run directories: from a recipe to a trained model on disk, and back."""
