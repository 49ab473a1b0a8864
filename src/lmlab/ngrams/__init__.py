"""Estimating n-grams: counting them, and smoothing the counts."""
