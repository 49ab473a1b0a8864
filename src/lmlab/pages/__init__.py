"""The house style of the pages that lmlab makes."""
