"""The objective of learning the slow, obvious way, in extended precision; imports nothing from the package.

The joint law of the state at all batches is written out, readings are conditioned on one fold and one batch at a time,
and every step comes from one augmented exponential (Van Loan's for the noise).
"""

from __future__ import annotations

import numpy as np

LD = np.longdouble


def expm(M):
    """Taylor after scaling, squared back."""
    M = np.asarray(M, dtype=LD)
    s = max(0, int(np.ceil(np.log2(float(np.abs(M).sum(axis=1).max(initial=1e-30))))) + 4)
    Z = M / LD(2) ** s
    term = total = np.eye(len(M), dtype=LD)
    for i in range(1, 25):
        term = term @ Z / i
        total = total + term
    for _ in range(s):
        total = total @ total
    return total


def solve(S, b):
    """Gaussian elimination of a positive definite matrix, and the log of its determinant."""
    S, b = S.copy(), b.copy()
    log_det = LD(0)
    for i in range(len(S)):
        log_det += np.log(S[i, i])
        for j in range(i + 1, len(S)):
            factor = S[j, i] / S[i, i]
            S[j, i:] -= factor * S[i, i:]
            b[j] -= factor * b[i]
    x = np.zeros_like(b)
    for i in reversed(range(len(S))):
        x[i] = (b[i] - S[i, i + 1 :] @ x[i + 1 :]) / S[i, i]
    return x, log_det


def step(A, B, Qc, dt):
    r, m = B.shape
    M = np.zeros((r + 2 * m, r + 2 * m), dtype=LD)
    M[:r, :r], M[:r, r : r + m], M[r : r + m, r + m :] = A * dt, B * dt, np.eye(m)
    E = expm(M)
    van_loan = expm(np.block([[A, Qc], [np.zeros_like(A), -A.T]]) * dt)
    F, E2 = E[:r, :r], E[:r, r + m :]
    return F, van_loan[:r, r:] @ F.T, E[:r, r : r + m] - E2, E2


def objective(system, record, folds):
    """By batch, (T,). The arguments are dicts of arrays under the names of the fields."""
    s = {name: np.asarray(value, dtype=LD) for name, value in system.items()}
    A = np.diag(s["A"]) if s["A"].ndim == 1 else s["A"]
    R = np.diag(s["R"]) if s["R"].ndim == 1 else s["R"]
    H, C, B = s["H"], s["C"], s["B"]
    y = np.asarray(record["y"], dtype=LD)
    u = np.vstack([record["inputs_0"], record["inputs"]]).astype(LD)
    (T, n), r = y.shape, len(A)
    steps = [step(A, B, s["Qc"], LD(dt)) for dt in record["gaps"]]
    means, cross = [], np.zeros((T * r, T * r), dtype=LD)
    m, P = s["m0"], s["P0"]
    for t, gap in enumerate(record["gap"]):
        F, Q, G0, G1 = steps[gap] if gap >= 0 else (np.eye(r, dtype=LD), LD(0) * A, LD(0) * B, LD(0) * B)
        m, P = F @ m + G0 @ u[t] + G1 @ u[t + 1], F @ P @ F.T + Q
        means.append(m)
        now = slice(t * r, (t + 1) * r)
        if t:
            past = F @ cross[(t - 1) * r : t * r, : t * r]
            cross[now, : t * r], cross[: t * r, now] = past, past.T
        cross[now, now] = P
    full_H = np.kron(np.eye(T), H)
    joint = full_H @ cross @ full_H.T + np.kron(np.eye(T), R)
    departure = (y - np.array(means) @ H.T - u[1:] @ C.T).ravel()
    finite = np.isfinite(y)
    two_pi = 2 * LD(np.pi)

    def density(kept):
        rows = np.flatnonzero(kept.ravel())
        x, log_det = solve(joint[np.ix_(rows, rows)], departure[rows])
        return -(len(rows) * np.log(two_pi) + log_det + departure[rows] @ x) / 2

    out = np.zeros(T, dtype=LD)
    for t in range(folds["skip"], T):
        upto, before = finite.copy(), finite.copy()
        upto[t + 1 :] = before[t:] = False
        out[t] -= folds["evidence_weight"] * (density(upto) - density(before))
        for left_out in folds["left_out"]:
            rows = np.flatnonzero((upto & ~left_out).ravel())
            for i in np.flatnonzero(left_out & finite[t]):
                c = joint[rows, t * n + i]
                w, _ = solve(joint[np.ix_(rows, rows)], c)
                error = departure[t * n + i] - w @ departure[rows]
                spread = joint[t * n + i, t * n + i] - c @ w + s["extra"][i]
                out[t] += folds["score_weight"] * (np.log(two_pi * spread) + error**2 / spread) / 2
    return out
