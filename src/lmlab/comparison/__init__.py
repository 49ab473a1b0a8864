"""Comparisons under equal conditions."""
