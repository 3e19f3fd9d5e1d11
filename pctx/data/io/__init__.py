"""Readers and writers of point-cloud files."""
