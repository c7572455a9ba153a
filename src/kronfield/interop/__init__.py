"""Data of other libraries: xarray, pandas and scikit-learn."""
