"""Derive: task specifications to closed systems of symbolic equations."""
