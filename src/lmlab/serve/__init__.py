"""Runs behind the API that people's tools speak: one engine for each run, and the routes over them."""
