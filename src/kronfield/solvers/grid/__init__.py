"""Least squares on grids: one factorisation per axis."""
