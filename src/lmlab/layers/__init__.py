"""Mathematics shared by the models: no file here knows a model's name."""
