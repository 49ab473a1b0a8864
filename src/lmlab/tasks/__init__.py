"""What is learnt from labelled examples, and what that would be worth without any language model."""
