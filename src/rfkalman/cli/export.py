"""``rfkalman export``: the posterior on a grid, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ..runs.export import export as write_export
from . import shared
from .app import emit, progress_bar


def export(
    problem: shared.problem_argument,
    target: Annotated[Path, typer.Argument(help="What to write: .nc, .zarr, .csv or .tif.")],
    out: shared.folder_option = None,
    at: Annotated[
        list[str] | None, typer.Option(help="A time; may be given many times. Times of the analyses by default.")
    ] = None,
    resolution: Annotated[int | None, typer.Option(min=2, max=4000, help="Points along the longest side.")] = None,
    threshold: Annotated[list[float] | None, typer.Option(help="Also the probability of exceeding this value.")] = None,
    crs: Annotated[int | None, typer.Option(help="EPSG code of the coordinates, for GeoTIFF.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Write mean, std and exceedance on a grid as NetCDF (CF), Zarr, CSV or GeoTIFF."""
    setup = shared.load(problem, quiet=True)
    if target.exists() and not overwrite:
        raise ValueRangeError(f"{target} exists already; --overwrite replaces it.")
    with shared.open_run(setup, out) as found, progress_bar() as bars:
        task = bars.add_task("export", total=1.0, what=str(target))
        written = write_export(
            found.record,
            setup,
            target,
            times=[shared.moment(setup, text, "--at") for text in at] if at else None,
            resolution=resolution,
            thresholds=threshold,
            crs=crs,
            overwrite=overwrite,
            progress=lambda done: bars.update(task, completed=done),
        )
    emit({"written": shared.say_written(written)})
