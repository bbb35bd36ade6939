"""Solve: closed systems of symbolic equations to numbers."""
