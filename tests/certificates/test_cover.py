"""Covers of other domains than boxes: nothing left out, refused where the argument fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.certificates.draws import L_SHAPE, largest, line_space

import rfkalman as rk
from rfkalman.certificates import envelopes, leverage
from rfkalman.certificates.cover import region_of
from rfkalman.errors import ConformityError, ValueRangeError
from rfkalman.features.cutoffs import BallCutoff


def neumann(domain):
    return rk.Heat(domain, boundary={"*": rk.Neumann()})


def test_a_windowed_disk_is_certified_from_inside():
    """A disk is convex: covering points outside it move onto it, where the bounds of the window hold."""
    disk = rk.Ball([1.0, -1.0], 0.5)
    space = rk.whiten(rk.Heat(disk), rk.bubble(rk.GaussianRFF(12, 0.4)), 1e-4)
    peak = leverage.realised(space)
    truth = max(peak.value, largest(space, disk.sample(50_000, np.random.default_rng(0))))
    assert_allclose(peak.value, truth, rtol=1e-6)
    found = [form(space, 41, peak=peak) for form in (leverage.first_order, leverage.second_order)]
    found.append(leverage.refined(space, 1.2, peak=peak))
    assert min(f.certified for f in found) >= truth
    assert found[-1].certified <= 1.2 * peak.value
    # Control: outside the disk the bounds of the window do not hold, so moving the points is not idle.
    corner = disk.lower[None] + 1e-3
    assert np.linalg.norm(space.features.cutoff.jet(corner)[1]) > space.features.cutoff.sup_gradient


@pytest.mark.parametrize(
    "domain",
    [
        rk.Ball([0.0, 0.0], 1.0, inner_radius=0.5),
        rk.Polygon(L_SHAPE),
        rk.Polygon([[0.0, 0.0], [2.0, 0.0], [0.5, 1.0]]),
        rk.Mesh([[0, 0], [1, 0], [1, 1], [0, 1], [2, 0]], [[0, 1, 2], [0, 2, 3], [1, 4, 2]]),
    ],
    ids=["ring", "L", "triangle", "mesh"],
)
def test_bounds_on_the_whole_bounding_box_certify_any_shape(domain):
    """Unwindowed waves are bounded everywhere, so a cover may step across gaps; cells that miss the domain are left
    out, since the whitened features grow without control beyond it."""
    space = rk.whiten(neumann(domain), rk.GaussianRFF(12, 0.5, seed=1), 1e-4)
    peak = leverage.realised(space, n=65)
    truth = max(peak.value, largest(space, domain.sample(20_000, np.random.default_rng(0))))
    found = [leverage.first_order(space, 31, peak=peak), leverage.second_order(space, 31, peak=peak)]
    found.append(leverage.refined(space, 1.5, peak=peak))
    assert min(f.certified for f in found) >= truth
    assert found[-1].certified <= 1.5 * found[-1].realised
    assert domain.contains(found[-1].location[None]).all()
    assert found[0].n_evaluations < 31**2


def test_a_solid_mesh_is_certified():
    """Facets in space are kept with a ball around each; a cube of six tetrahedra agrees with the box it fills, up to
    the two searches."""
    corners = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], dtype=float)
    cells = [[0, 4, 6, 7], [0, 6, 2, 7], [0, 2, 3, 7], [0, 3, 1, 7], [0, 1, 5, 7], [0, 5, 4, 7]]
    mesh, box = rk.Mesh(corners, cells), rk.Box([0.0] * 3, [1.0] * 3)
    found = []
    for domain in (mesh, box):
        space = rk.whiten(neumann(domain), rk.GaussianRFF(6, 1.5), 1e-2)
        found.append(leverage.refined(space, 1.3, peak=leverage.realised(space, n=15)))
    assert found[0].certified <= 1.3 * found[0].realised
    assert_allclose(found[0].realised, found[1].realised, rtol=1e-3)


def test_a_windowed_polygon_is_certified_to_first_order():
    """Its window has unbounded curvature at the vertices, and bounds that hold on the convex hull."""
    space = rk.whiten(rk.Heat(rk.Polygon(L_SHAPE)), rk.bubble(rk.GaussianRFF(10, 0.4)), 1e-3)
    peak = leverage.realised(space, n=65)
    found = leverage.first_order(space, 41, peak=peak)
    assert found.certified >= largest(space, space.pde.domain.sample(20_000, np.random.default_rng(0)))
    with pytest.raises(ConformityError, match=r"bounded second derivatives.*leverage\.first_order"):
        leverage.refined(space, peak=peak)


def test_no_cell_that_meets_the_domain_is_left_out():
    """What is dropped must miss the domain: every sampled point lies within h of a covering point."""
    h = 0.06
    for domain in (rk.Ball([0.0, 0.0], 1.0, inner_radius=0.5), rk.Polygon(L_SHAPE), rk.Ball([0.0, 0.0], 1.0)):
        space = rk.whiten(neumann(domain), rk.GaussianRFF(6, 0.8), 1e-2)
        region = region_of(space)
        n = np.ceil(domain.side * math.sqrt(2) / (2 * h)).astype(int) + 1
        nodes = rk.Box(domain.lower, domain.upper).grid(tuple(n.tolist()))
        points = region.pull(nodes[region.meets(nodes, h)])
        x = domain.sample(2000, np.random.default_rng(5))
        distance = np.sqrt(((x[:, None, :] - points) ** 2).sum(axis=2)).min(axis=1)
        assert distance.max() <= h
        assert len(points) < len(nodes)


def test_certificates_are_refused_where_the_argument_fails():
    """Each with its reason and remedy; the realised leverage works on all of them."""
    elu = line_space(0, recipe=rk.ELUNetwork(8, 0.3, alpha=2.0), nonconforming=True)
    with pytest.raises(ConformityError, match=r"alpha other than 1.*TanhNetwork"):
        leverage.second_order(elu)
    ring = rk.Ball([0.0, 0.0], 1.0, inner_radius=0.5)
    windowed = rk.whiten(rk.Heat(ring), rk.bubble(rk.GaussianRFF(8, 0.5)), 1e-2)
    assert isinstance(windowed.features.cutoff, BallCutoff)
    with pytest.raises(ConformityError, match=r"not known to be convex.*unwindowed"):
        leverage.first_order(windowed)
    corner = rk.whiten(rk.Heat(rk.Polygon(L_SHAPE)), rk.bubble(rk.GaussianRFF(8, 0.4) + rk.CornerRFF(4, 0.4)), 1e-2)
    with pytest.raises(ConformityError, match=r"convex|gradient bound"):
        leverage.first_order(corner)
    middle = [[0.5, -0.1], [0.6, 0.6], [-0.1, 0.5]]
    bent = rk.Mesh([[0, 0], [1, 0], [0, 1], *middle], [[0, 1, 2, 3, 4, 5]])
    curved = rk.whiten(neumann(bent), rk.GaussianRFF(6, 0.8), 1e-2)
    with pytest.raises(ConformityError, match=r"curved cells.*curved=False"):
        leverage.first_order(curved)
    for space in (elu, windowed, corner, curved):
        assert leverage.realised(space, n=33).value >= space.rank * (1.0 - 1e-2)
    with pytest.raises(ValueRangeError, match="ratio must exceed 1"):
        leverage.refined(line_space(0), ratio=1.0)
    with pytest.raises(ValueRangeError, match="failure_prob must lie between 0 and 1"):
        envelopes.rff_gradient_envelope(10, 2, 1.0, 0.0)
