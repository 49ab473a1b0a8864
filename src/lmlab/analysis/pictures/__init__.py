"""Looking inside models that read pictures: attention, neighbours, search, matching with texts, typographic attacks."""
