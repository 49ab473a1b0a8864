"""Items to memory-mapped tokens: split, hashed, and kept in the cache."""
