"""Music to items: MIDI files, JSON piano rolls, and the built-in tunes."""
