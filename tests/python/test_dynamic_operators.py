"""Sizes that change under operators that have no shape rule of ours: torch's kernel is asked for several sizes, and what it says is
checked at each call. At most three graphs for eleven sizes, forward and gradient, and every answer is eager's."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import linalg, nn, randn

import magneto
from rounding import close

weight = randn(3, 4)


def rows(n):
    return randn(n, 4)


def line(n):
    return randn(2, 3, n)


def image(n):
    return randn(2, 4, n, n + 2)


def even_image(n):
    return image(2 * n)


def square(n):
    return randn(n, n) + n * torch.eye(n)


def symmetric(x):
    return x @ x.mT


def two(n):
    return randn(n, 4), randn(n, 4)


def labelled(n):
    return randn(n, 4), torch.randint(0, 4, (n,))


def indices(*shape):
    return torch.randint(0, 10, shape)


bags = {mode: nn.EmbeddingBag(10, 4, mode=mode) for mode in ("mean", "max", "sum")}

PROGRAMS = {
    # Fourier transforms
    "fft": (lambda x: torch.fft.fft(x).abs(), rows), "rfft": (lambda x: torch.fft.rfft(x, norm="ortho").abs(), lambda n: randn(3, n)),
    "rfft of rows": (lambda x: torch.fft.rfft(x, dim=0).abs(), rows), "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x)), lambda n: randn(3, n)),
    "irfft of a size": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]), lambda n: randn(3, n)), "fft2": (lambda x: torch.fft.fft2(x).abs(), image),
    "rfft2": (lambda x: torch.fft.rfft2(x).abs(), image), "irfft2": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]), image), "fftn": (lambda x: torch.fft.fftn(x).abs(), image),
    "convolution by fft": (lambda x: torch.fft.irfft(torch.fft.rfft(x, n=2 * x.shape[-1]) * torch.fft.rfft(x.flip(-1), n=2 * x.shape[-1]), n=2 * x.shape[-1])[..., :x.shape[-1]], line),
    # images
    "unfold": (lambda x: F.unfold(x, 3, padding=1), image), "unfold with steps": (lambda x: F.unfold(x, 2, stride=2), image), "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), image),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), lambda n: randn(2, 4, 2 * n, 2 * n)), "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=True, padding_mode="border"), lambda n: (image(n), torch.rand(2, n, 5, 2))),
    "affine_grid": (lambda x: F.grid_sample(x, F.affine_grid(torch.eye(2, 3).expand(2, 2, 3), x.shape, align_corners=False), align_corners=False), image),
    "grid_sample of volumes": (lambda x, g: F.grid_sample(x, g, align_corners=True), lambda n: (randn(2, 2, n, 4, 5), torch.rand(2, 3, n, 5, 3))),
    **{f"{mode} padding": (lambda x, mode=mode: F.pad(x, (1, 2, 1, 1), mode=mode), image) for mode in ("reflect", "replicate", "circular")},
    **{f"{mode} padding of lines": (lambda x, mode=mode: F.pad(x, (1, 2), mode=mode), line) for mode in ("reflect", "replicate", "circular")},
    **{f"{mode} to a size": (lambda x, mode=mode: F.interpolate(x, size=(9, 9), mode=mode), image) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")},
    **{f"{mode} by a factor": (lambda x, mode=mode: F.interpolate(x, scale_factor=1.5, mode=mode), image) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")},
    "bilinear with antialias": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", antialias=True), image), "bicubic with antialias, to a size": (lambda x: F.interpolate(x, (7, 8), mode="bicubic", antialias=True), image),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), lambda n: randn(1, 2, n, 4, 5)), "linear": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), line),
    "nearest of lines": (lambda x: F.interpolate(x, scale_factor=2), line), "nearest of volumes": (lambda x: F.interpolate(x, size=(7, 4, 5)), lambda n: randn(1, 2, n, 4, 5)),
    "adaptive pools": (lambda x: F.adaptive_avg_pool2d(x, 3) + F.adaptive_max_pool2d(x, 3), image), "lp_pool2d": (lambda x: F.lp_pool2d(x.abs() + 1, 2, 2), image), "max_pool3d": (lambda x: F.max_pool3d(x, 2), lambda n: randn(2, 3, n, 4, 6)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), image),
    # bags and distances
    "bags": (bags["mean"], lambda n: indices(n, 3)), "bags that grow": (bags["sum"], lambda n: indices(3, n)), "largest of bags": (bags["max"], lambda n: indices(n, 3)),
    "bags with offsets": (lambda i, o: bags["mean"](i, o), lambda n: (indices(n), torch.tensor([0, 2, 4]))),
    "cdist": (lambda x: torch.cdist(x, weight), rows), "cdist by 1": (lambda x: torch.cdist(x, x + 1, p=1), rows), "cdist of batches": (lambda x: torch.cdist(x, x + 1), lambda n: randn(2, n, 4)),
    "pdist": (F.pdist, rows), "pairwise_distance": (lambda x: F.pairwise_distance(x, x + 1), rows), "renorm": (lambda x: x.renorm(2, 0, 1.0), rows),
    # order and counts
    "sort": (lambda x: torch.sort(x, 0)[0], rows), "median": (lambda x: (x.median(0)[0], x.median(), x.nanmedian(0)[0]), rows), "mode": (lambda x: torch.mode(x.round(), 0)[0], rows), "kthvalue": (lambda x: x.kthvalue(2, 0)[0], rows),
    "topk": (lambda x: x.topk(x.shape[0] // 2, 0)[0], rows), "cummax": (lambda x: torch.cummax(x, 0)[0], rows), "logcumsumexp": (lambda x: torch.logcumsumexp(x, 0), rows), "cumprod": (lambda x: x.cumprod(0), rows),
    "histc": (lambda x: torch.histc(x, 5, -3, 3), rows), "searchsorted": (lambda x: torch.searchsorted(torch.arange(5.0), x), rows), "searchsorted in rows": (lambda x: torch.searchsorted(x.sort(-1)[0], x), rows),
    "bucketize": (lambda x: torch.bucketize(x, torch.arange(3.0), right=True), rows), "isin": (lambda x: torch.isin(x.round(), torch.ones(2)), rows), "count_nonzero": (lambda x: torch.count_nonzero(x.round(), 0), rows),
    "heaviside": (lambda x: torch.heaviside(x.detach(), torch.ones(())), rows), "nonzero_static": (lambda x: torch.nonzero_static(x, size=3), rows), "take_along_dim": (lambda x: torch.take_along_dim(x, x.argsort(0), 0), rows), "take": (lambda x: x.take(torch.arange(4)), rows),
    # matrices
    "inv": (linalg.inv, square), "det": (linalg.det, square), "slogdet": (lambda x: linalg.slogdet(x)[1], square), "cholesky": (lambda x: linalg.cholesky(symmetric(x)), square), "qr": (lambda x: linalg.qr(x)[1].abs(), square),
    "svdvals": (linalg.svdvals, square), "eigvalsh": (lambda x: linalg.eigvalsh(symmetric(x)), square), "solve": (lambda x: linalg.solve(x, x[:, :2]), square), "matrix_exp": (lambda x: torch.matrix_exp(x * 0.01), square),
    "solve_triangular": (lambda x: linalg.solve_triangular(x.triu(), x[:, :2], upper=True), square), "pinv": (linalg.pinv, square), "nuclear norm": (lambda x: linalg.matrix_norm(x, "nuc"), square), "lu_factor": (lambda x: linalg.lu_factor(x)[0], square),
    "cholesky_solve": (lambda x: torch.cholesky_solve(x[:, :2], linalg.cholesky(symmetric(x))), square), "cross": (lambda x: torch.cross(x[:, :3], x[:, 1:], dim=-1), rows), "matrix_power": (lambda x: linalg.matrix_power(symmetric(x) * 0.1, 2), rows),
    "polar": (lambda x: torch.polar(x.abs(), x).abs(), rows), "diag": (lambda x: x[:, 0].diag(), rows), "diag_embed": (lambda x: x.diag_embed(), rows), "dist": (lambda x: torch.dist(x, x * 2), rows), "aminmax": (lambda x: torch.aminmax(x.detach(), dim=0), rows),
    # losses
    "bce": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), two), "soft_margin_loss": (lambda x, y: F.soft_margin_loss(x, y.detach()), two), "multilabel_soft_margin_loss": (lambda x, y: F.multilabel_soft_margin_loss(x, (y > 0).float()), two),
    "triplet_margin_loss": (lambda x, y: F.triplet_margin_loss(x, y, x * y), two), "multi_margin_loss": (F.multi_margin_loss, labelled), "logsigmoid": (F.logsigmoid, rows), "multinomial": (lambda x: torch.multinomial(x.detach().abs(), 2), rows),
    "normal": (lambda x: torch.normal(x.detach(), 1.0), rows),
}


def listed(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def answer(function, arguments, gradients):
    torch.manual_seed(1)
    given = [a.clone().requires_grad_(gradients and a.is_floating_point()) for a in arguments]
    outputs = listed(function(*given))
    ends = [t for t in outputs if t.requires_grad]
    if gradients and ends:
        torch.autograd.backward(ends, [torch.ones_like(t) for t in ends])
    return [t.detach() for t in outputs], [a.grad for a in given]


@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes(name, gradients):
    function, make = PROGRAMS[name]
    compiled = magneto.compile(function)
    for n in range(5, 16):
        torch.manual_seed(n)
        made = make(n)
        arguments = made if isinstance(made, tuple) else (made,)
        want, have = answer(function, arguments, gradients), answer(compiled, arguments, gradients)
        for a, b in zip(want[0] + want[1], have[0] + have[1]):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
                assert close(a, b) or torch.allclose(a, b, 1e-4, 1e-5)
    report = magneto.report()
    assert len(report.graphs) <= 3 and not report.fallbacks and not report.break_count, str(report)


@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_what_torch_says_elsewhere_is_not_believed(backend):
    """An operator whose result has another size from 40 rows on: that is seen when it comes back, told, and eager answers."""
    library = torch.library.Library("aten", "FRAGMENT")
    name = f"magneto_test_{backend}"
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x.new_ones(x.shape[0] if x.shape[0] < 40 else 3), "CPU")
    operator = getattr(torch.ops.aten, name).default

    def f(x):
        return operator(x * 2) + 1

    compiled = magneto.compile(f, backend=backend)
    for n in (5, 6, 7, 8, 9):
        assert torch.equal(compiled(randn(n, 2)), torch.full((n,), 2.0))
    assert len(magneto.report().graphs) == 2
    with pytest.warns(RuntimeWarning, match="gave a tensor of other sizes"):
        assert torch.equal(compiled(randn(64, 2)), torch.full((3,), 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(randn(65, 2)), torch.full((3,), 2.0))
        assert torch.equal(compiled(randn(10, 2)), torch.full((10,), 2.0))
