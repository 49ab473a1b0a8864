"""Text to tokens: finding and reading texts, preparing a corpus, and cutting it into batches."""
