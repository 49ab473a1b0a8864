"""The studio: runs looked at in the browser. Routes are small files, one per view; the front end is in static/."""
