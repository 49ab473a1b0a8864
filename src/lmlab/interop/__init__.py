"""Formats of other toolkits, read and written."""
