"""Fair comparison: every system on the same text, under the same budget, with its price tag."""
