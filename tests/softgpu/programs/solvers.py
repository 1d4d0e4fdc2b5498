"""Dense solvers on the soft GPU, by what their results must satisfy and against the CPU's.

solvers.py CHECK...
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch
from torch import Tensor, linalg

KINDS = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = ((), (2, 2), (0,))


def near(gpu: Tensor, expected: Tensor, scale: float = 200) -> None:
    """Compare up to rounding: `scale` units of the type's resolution, of the largest value."""
    gpu, expected = gpu.cpu(), expected.cpu().to(gpu.dtype)
    assert gpu.shape == expected.shape, (gpu.shape, expected.shape)
    if gpu.numel() == 0:
        return
    allowed = torch.finfo(gpu.dtype).eps * scale * max(float(expected.abs().max()), 1)
    off = float((gpu - expected).abs().max())
    assert off <= allowed, (off, allowed)


def general(kind: torch.dtype, batch: tuple[int, ...], rows: int, columns: int) -> Tensor:
    return torch.randn(*batch, rows, columns, dtype=kind)


def definite(kind: torch.dtype, batch: tuple[int, ...], n: int) -> Tensor:
    a = general(kind, batch, n, n)
    return a @ a.mH / max(n, 1) + torch.eye(n, dtype=kind)


def cholesky(kind: torch.dtype, batch: tuple[int, ...]) -> None:
    for n in (0, 1, 20):
        a, b = definite(kind, batch, n), general(kind, batch, n, 3)
        for upper in (False, True):
            factor = linalg.cholesky(a.cuda(), upper=upper)
            near(factor, linalg.cholesky(a, upper=upper))
            near(a @ torch.cholesky_solve(b.cuda(), factor, upper=upper).cpu(), b, 1e3)
            one = torch.cholesky_solve(b[..., :1].cuda(), factor, upper=upper)
            near(a @ one.cpu(), b[..., :1], 1e3)
        near(
            a @ torch.cholesky_inverse(linalg.cholesky(a.cuda())).cpu(),
            torch.eye(n).expand_as(a),
            1e3,
        )


def lu(kind: torch.dtype, batch: tuple[int, ...]) -> None:
    for n in (0, 1, 20):
        a = general(kind, batch, n, n) + 4 * torch.eye(n, dtype=kind)
        b = general(kind, batch, n, 3)
        near(a @ linalg.solve(a.cuda(), b.cuda()).cpu(), b, 1e4)
        near(a @ linalg.inv(a.cuda()).cpu(), torch.eye(n).expand_as(a), 1e4)
        near(linalg.det(a.cuda()) / linalg.det(a).cuda(), torch.ones(batch), 1e4)
        for adjoint in (False, True):
            factors = linalg.lu_factor(a.cuda())
            x = linalg.lu_solve(*factors, b.cuda(), adjoint=adjoint).cpu()
            near((a.mH if adjoint else a) @ x, b, 1e4)
    for shape in ((20, 7), (7, 20)):
        a = general(kind, batch, *shape)
        for pivot in (True, False):
            p, lower, upper = linalg.lu(a.cuda(), pivot=pivot)
            near((p @ lower @ upper if pivot else lower @ upper), a, 200 if pivot else 1e6)


def ldl(kind: torch.dtype, batch: tuple[int, ...]) -> None:
    a = general(kind, batch, 20, 20)
    a = a + a.mT  # symmetric, also of complex elements
    b = general(kind, batch, 20, 3)
    factors, pivots = linalg.ldl_factor(a.cuda())
    near(a @ linalg.ldl_solve(factors, pivots, b.cuda()).cpu(), b, 1e5)


def qr(kind: torch.dtype, batch: tuple[int, ...]) -> None:
    for shape in ((20, 7), (7, 20), (9, 9), (0, 4), (4, 0)):
        a = general(kind, batch, *shape)
        for mode in ("reduced", "complete"):
            q, r = linalg.qr(a.cuda(), mode=mode)
            near(q @ r, a)
            near(q.mH @ q, torch.eye(q.shape[-1]).expand(*batch, -1, -1))
            near(r, r.triu(), 0)
    a, b = general(kind, batch, 20, 7), general(kind, batch, 20, 3)
    near(linalg.lstsq(a.cuda(), b.cuda()).solution, linalg.lstsq(a, b).solution, 1e4)
    if not batch:
        near(torch.ormqr(*torch.geqrf(a.cuda()), b.cuda()), torch.ormqr(*torch.geqrf(a), b), 1e3)


def eigh(kind: torch.dtype, batch: tuple[int, ...]) -> None:
    for n in (0, 1, 7, 40):
        a = definite(kind, batch, n)
        for part in ("L", "U"):
            used = a.tril() if part == "L" else a.triu()  # the other triangle is not looked at
            values, vectors = linalg.eigh(used.cuda(), UPLO=part)
            near(values, linalg.eigvalsh(a))
            near(a @ vectors.cpu(), vectors.cpu() * values.cpu().unsqueeze(-2))
            near(vectors.mH @ vectors, torch.eye(n).expand_as(a))
            near(linalg.eigvalsh(used.cuda(), UPLO=part), linalg.eigvalsh(a))


def eig(kind: torch.dtype, batch: tuple[int, ...]) -> None:
    for n in (0, 1, 20):
        a = general(kind, batch, n, n)
        values, vectors = linalg.eig(a.cuda())
        near(a.to(values.dtype) @ vectors.cpu(), (vectors * values.unsqueeze(-2)).cpu(), 1e4)
        near(linalg.eigvals(a.cuda()).sum(-1), a.diagonal(dim1=-2, dim2=-1).sum(-1), 1e4)


def svd(kind: torch.dtype, batch: tuple[int, ...]) -> None:
    for shape in ((20, 7), (7, 20), (9, 9), (40, 33), (0, 4), (4, 0)):
        a = general(kind, batch, *shape)
        for driver in (None, "gesvd", "gesvdj", "gesvda"):
            for full in (False, True):
                if full and driver == "gesvda":  # which has no more columns to give
                    continue
                u, s, vh = linalg.svd(a.cuda(), full_matrices=full, driver=driver)
                near(s, linalg.svdvals(a))
                k = s.shape[-1]
                near((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a)
                near(u.mH @ u, torch.eye(u.shape[-1]).expand(*batch, -1, -1))
                near(vh @ vh.mH, torch.eye(vh.shape[-2]).expand(*batch, -1, -1))
            near(linalg.svdvals(a.cuda(), driver=driver), linalg.svdvals(a))
    near(linalg.pinv(a.cuda()), linalg.pinv(a))


def refused(kind: torch.dtype, batch: tuple[int, ...]) -> None:
    """What has no answer raises what it raises on the CPU, and the device goes on."""
    bad = torch.eye(4, dtype=kind).expand(*batch, 4, 4).clone()
    bad[..., 2, 2] = 0
    lost = bad.clone()
    lost[..., 1, 1] = torch.nan
    calls: list[tuple[Callable[[Tensor], object], Tensor]] = [
        (lambda a: linalg.cholesky(a), -bad), (lambda a: linalg.inv(a), bad),
        (lambda a: linalg.solve(a, a), bad), (lambda a: linalg.eigh(a), lost),
        (lambda a: linalg.svd(a), lost), (lambda a: linalg.eigvals(a), lost),
    ]  # fmt: skip
    for number, (call, a) in enumerate(calls):
        raised = ""
        try:
            call(a.cuda())
        except RuntimeError as error:
            raised = type(error).__name__ + str(error)
        assert ("LinAlgError" in raised or "inf" in raised) == (0 not in batch), (number, raised)
    assert linalg.cholesky_ex(-bad.cuda()).info.eq(1).all()
    near(linalg.det(bad.cuda()), torch.zeros(batch))


def gradients() -> None:
    for call in (
        lambda a: linalg.eigh(a + a.mT).eigenvalues, lambda a: linalg.svd(a).S,
        lambda a: linalg.cholesky(a @ a.mT + torch.eye(6, device=a.device)),
        lambda a: linalg.qr(a).R, lambda a: linalg.solve(a, a @ a), linalg.slogdet,
    ):  # fmt: skip
        start = torch.randn(2, 6, 6) + 3 * torch.eye(6)
        grads = []
        for device in ("cuda", "cpu"):
            a = start.to(device).requires_grad_()
            out = call(a)
            (out if isinstance(out, Tensor) else out[1]).square().sum().backward()
            grads.append(a.grad)
        near(grads[0], grads[1], 1e4)


def repeats() -> None:
    """The same bits again, in a graph as well."""
    a = definite(torch.float32, (3,), 50).cuda()
    first, second = (linalg.eigh(a) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
    assert torch.equal(linalg.cholesky_ex(a).L, linalg.cholesky_ex(a).L)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        linalg.cholesky_ex(a[0])
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        factor = linalg.cholesky_ex(a[0]).L
    a[0] += torch.eye(50, device="cuda")
    graph.replay()
    near(factor, linalg.cholesky(a[0].cpu()))


ALL = ["cholesky", "lu", "ldl", "qr", "eigh", "eig", "svd", "refused", "gradients", "repeats"]
torch.manual_seed(0)
for name in sys.argv[1:] or ALL:
    check = globals()[name]
    for case in [()] if name in ("gradients", "repeats") else itertools.product(KINDS, SHAPES):
        print(name, *case, flush=True)
        check(*case)
