"""Recordings to text: the transcriber, the times of segments, and the times of words."""
