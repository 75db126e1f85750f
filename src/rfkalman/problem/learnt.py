"""Which keys of a problem may be learnt, and what each is called in the family of its model."""

from __future__ import annotations

import re
from typing import NamedTuple

from .section import Key, dotted


class Learning(NamedTuple):
    """A value that is to be learnt, in the units of the problem."""

    guess: float
    factor: float
    knots: int = 1


#: Keys that may be learnt, and the names of :func:`rfkalman.learning.family.family_of`; groups of the key go in.
_NAMES = {
    r"physics\.diffusion": "diffusion",
    r"physics\.diffusion\.(?:values\[\d+\]|inside|outside|regions\..+)": "diffusion",
    r"physics\.capacity": "capacity",
    r"physics\.velocity(?:\.value)?(?:\[\d+\])?": "velocity",
    r"physics\.reaction": "reaction",
    r'physics\.boundary\."?([^"]+?)"?\.coefficient': "exchange {}",
    r'physics\.boundary\."?([^"]+?)"?(?:\.ambient|\.flux)?\.unknown\.change': "change of {}",
    r'physics\.boundary\."?([^"]+?)"?(?:\.ambient|\.flux)?\.unknown\.std': "std of {}",
    r'physics\.boundary\."?([^"]+?)"?(?:\.ambient|\.flux)?\.unknown\.memory': "memory of {}",
    r"physics\.sources\[(\d+)\]\.strength": "strength {}",
    r"physics\.sources\[(\d+)\]\.strength\.unknown\.change": "change of {}",
    r"physics\.sources\[(\d+)\]\.strength\.unknown\.std": "std of {}",
    r"physics\.sources\[(\d+)\]\.strength\.unknown\.memory": "memory of {}",
    r"physics\.level\.change": "change of level",
    r"physics\.level\.std": "std of level",
    r"physics\.level\.memory": "memory of level",
    r"physics\.source_field\.std": "std of source field",
    r"physics\.source_field\.memory": "memory of source field",
    r"physics\.source_field\.(?:reach|length)": "reach of source field",
    r"physics\.process_noise\.change": "process noise",
    r"physics\.process_noise\.(?:reach|length)": "reach of process noise",
    r"prior\.(?:reach|length)": "reach of prior",
    r"sensors\.noise": "noise",
    r"sensors\.offset": "offset",
    r"sensors\.offset_memory": "memory of offset",
    r"sensors\.place_std": "place",
}


def is_learnable(at: Key) -> bool:
    """Whether a key may hold a value that is learnt."""
    return any(re.fullmatch(pattern, dotted(at)) for pattern in _NAMES)


def learning_name(at: Key) -> tuple[str, str]:
    """The name of a key in the family of a model, and the part of the key that stands in it.

    Examples
    --------
    >>> learning_name(("physics", "boundary", "x-", "unknown", "change"))
    ('change of {}', 'x-')
    """
    for pattern, name in _NAMES.items():
        found = re.fullmatch(pattern, dotted(at))
        if found:
            return name, found.group(1) if found.groups() else ""
    raise KeyError(dotted(at))
