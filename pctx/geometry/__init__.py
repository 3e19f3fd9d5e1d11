"""Packed points, curves, windows, kernel maps, pooling and the hierarchy a backbone walks."""
