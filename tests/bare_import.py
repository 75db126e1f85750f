"""Run by `make test` in an environment with NumPy and SciPy alone: the import and the README's contract need no more."""

import sys

import numpy as np

import rfkalman as rk

ALLOWED = {"numpy", "scipy", "rfkalman"}
loaded = {name.split(".")[0] for name in sys.modules}
extras = loaded & {"matplotlib", "xarray", "shapely", "meshio", "pandas", "pydantic", "typer", "sympy", "mpmath"}
assert not extras, f"import rfkalman pulled in {sorted(extras)}"

domain = rk.Box([0.0, 0.0], [1.0, 1.0])
space = rk.whiten(rk.Heat(domain), rk.bubble(rk.GaussianRFF(60, length_scale=1 / 6)), mass_floor=1e-6)
filt = rk.Assimilator(space, prior=rk.isotropic(std=1.0), start=0.0)
filt.advance(0.01)
filt.observe(rk.points([[0.3, 0.4]]), [1.0], noise_std=0.1)
assert np.isfinite(filt.posterior().mean(np.array([[0.5, 0.5]]))).all()
print(f"rfkalman {rk.__version__} works with numpy {np.__version__} alone")
