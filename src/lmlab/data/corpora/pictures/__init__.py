"""Pictures as corpora: with classes, with captions, or as sequences of pixels."""
