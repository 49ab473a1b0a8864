"""One decoding loop, one beam search and one exact scorer for everything that predicts the next token."""
