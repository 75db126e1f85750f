"""Run by `make test` where NumPy and SciPy are all there is: the import, the README and every page need no more."""

import re
import sys
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("error")
import rfkalman as rk  # noqa: E402
from rfkalman.core.errors import MissingExtraError  # noqa: E402

extras = {name.split(".")[0] for name in sys.modules} & {"matplotlib", "xarray", "pandas", "sympy", "mpmath"}
assert not extras, f"import rfkalman pulled in {sorted(extras)}"

root = Path(__file__).parent.parent
rng = np.random.default_rng(0)
stream = [(0.002 * n, rng.uniform(0.02, 0.98, (24, 2)), rng.standard_normal(24)) for n in range(20)]
ran, waiting = 0, []
for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
    names = {"stream": stream, "x": rng.random((50, 2))}
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        try:
            exec(compile(code, page.name, "exec"), names)
        except MissingExtraError as error:
            # The rest of the page builds on it; the message must name the extra to install.
            assert "pip install 'rfkalman[" in str(error)
            waiting.append(page.name)
            break
        ran += 1
print(
    f"rfkalman {rk.__version__} with numpy {np.__version__} and scipy alone: {ran} documented examples ran; "
    f"pages that ask for an extra: {', '.join(waiting) or 'none'}"
)
