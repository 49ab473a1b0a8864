"""The routes, one small file for each subject."""
