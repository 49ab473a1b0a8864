"""The fast twin of a layer, tested against its readable form."""
