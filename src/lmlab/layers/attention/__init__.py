"""Attention: of several heads, local, by hashing, with relative positions, in two streams, between two inputs."""
