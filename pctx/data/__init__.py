"""Floor 2: files, labels, features, transforms, datasets, the simulator."""
