"""Numbered batches: batch k is a pure function of the corpus, the settings and k."""
