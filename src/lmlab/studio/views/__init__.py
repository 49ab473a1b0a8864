"""The routes of the studio's views: each takes a request from the page and returns JSON."""
