"""Whitening and assembly against the flop limit of its two passes; for information."""

from __future__ import annotations

import rfkalman as rk

from .harness import Row, best, gemm, interleave, scaled

STAGE = "assembly"


def run() -> list[Row]:
    """Time over flops at the dgemm rate.

    2 N_c M^2 for the streamed QR, 12 M^3 for the SVD of its factor with right
    vectors, 2 N_c M r (1 + d) for features and gradients in whitened coordinates.
    """
    rows: list[Row] = []
    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    for n_features, length_scale, rounds in ((300, 1 / 12, 3), (1000, 1 / 24, 1)):
        recipe = rk.bubble(rk.GaussianRFF(n_features, length_scale, seed=0))
        pde = rk.Heat(box)
        spaces: list[rk.WhitenedSpace] = []

        def build(pde: object = pde, recipe: object = recipe, spaces: list[rk.WhitenedSpace] = spaces) -> None:
            spaces[:] = [rk.whiten(pde, recipe, mass_floor=1e-6)]  # type: ignore[arg-type]

        time = best(interleave({"whiten": build, "gemm": gemm(n_features)}, rounds=rounds, warm=1))
        space = spaces[0]
        M, r, N_c = n_features, space.rank, space.rule.n_points
        rate = 2.0 * M**3 / time["gemm"]
        limit = (2.0 * N_c * M**2 + 12.0 * M**3 + 2.0 * N_c * M * r * 3) / rate
        rows.append(
            Row(
                STAGE,
                f"times the flop limit, M={M}",
                time["whiten"] / limit,
                at_least=False,
                detail=f"{scaled(time['whiten'])} against {scaled(limit)}; N_c={N_c}, r={r}, {rate / 1e9:.1f} GFlop/s",
            )
        )
    return rows
