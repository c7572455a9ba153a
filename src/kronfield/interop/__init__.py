"""Data of other libraries: xarray and pandas."""
