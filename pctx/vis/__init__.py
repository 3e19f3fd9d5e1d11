"""Floor 3: palettes, scenes, pictures, pages and windows."""
