"""Files to items: what a user names on the command line, as texts, documents and pairs."""
