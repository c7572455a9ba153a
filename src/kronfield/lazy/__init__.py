"""Samples that do not fit into memory, or lie on several machines: arrays of Dask and zarr."""
