"""Array types, by the numbers that they hold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
AnyArray = NDArray[Any]

# What an array of objects may hold that NumPy would turn into floats, but that is no real number.
NOT_REAL = (str, bytes, complex, np.complexfloating)
