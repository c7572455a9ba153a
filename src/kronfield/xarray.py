"""Importing this module registers ``da.kronfield`` and ``ds.kronfield`` with xarray.

Examples
--------
>>> import numpy as np
>>> import xarray
>>> import kronfield.xarray
>>> x = np.linspace(0, 3, 31)
>>> da = xarray.DataArray(np.sin(x), {"x": x}, ("x",), name="wave")
>>> da.kronfield.interp(x=[0.05, 1.234]).values.round(6)
array([0.049979, 0.943818])
"""

import xarray

from kronfield.interop.accessor import ArrayAccessor, SetAccessor

__all__ = ["ArrayAccessor", "SetAccessor"]

xarray.register_dataarray_accessor("kronfield")(ArrayAccessor)
xarray.register_dataset_accessor("kronfield")(SetAccessor)
