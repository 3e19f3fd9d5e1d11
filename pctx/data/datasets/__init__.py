"""Datasets: where scans lie and how one is read."""
