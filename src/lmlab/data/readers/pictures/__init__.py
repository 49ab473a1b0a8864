"""Pictures to items: folders, tables, zip files and IDX files, and the built-in scenes and signs."""
