"""How is it solved? Least squares on grids, axis by axis, and at points."""
