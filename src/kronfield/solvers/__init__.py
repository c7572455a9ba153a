"""Solvers: least squares on grids, factored axis by axis."""
