"""Fourier transforms on the soft GPU against the CPU: values, layouts, gradients, audio models."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

fft = torch.fft
SIZES = (1, 2, 3, 7, 8, 15, 30, 53, 64, 97, 210, 1021)
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}


def same(got: Tensor, expected: Tensor) -> None:
    """Compare with what is rounded once, by the size of the largest number."""
    tolerance = TOLERANCE[expected.real.dtype] * (1 + float(expected.abs().max()))
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert float((got.cpu() - expected).abs().max()) <= tolerance * 4, (got, expected)


def lines() -> None:
    for dtype in TOLERANCE:
        for n in SIZES:
            x = torch.randn(3, n, dtype=dtype)
            z = torch.randn(3, n, dtype=torch.complex(x, x).dtype)
            for call in (fft.fft, fft.ifft):
                same(call(z.cuda()), call(z))
                same(call(x.cuda(), norm="ortho"), call(x, norm="ortho"))
            same(fft.rfft(x.cuda()), fft.rfft(x))
            same(fft.irfft(z.cuda(), n=n), fft.irfft(z, n=n))
            same(fft.hfft(z.cuda(), n=n), fft.hfft(z, n=n))
            same(fft.irfft(fft.rfft(x.cuda()), n=n), x)


def grids() -> None:
    for shape in ((4, 6), (3, 5, 7), (2, 8, 9, 10), (2, 3, 4, 5, 6)):
        x = torch.randn(shape, dtype=torch.float64)
        z = torch.randn(shape, dtype=torch.complex128)
        for call in (fft.fft2, fft.ifft2, fft.fftn, fft.ifftn):
            same(call(z.cuda()), call(z))
        for call in (fft.rfft2, fft.rfftn):
            same(call(x.cuda()), call(x))
        for call in (fft.irfft2, fft.irfftn):
            same(call(z.cuda()), call(z))
        same(fft.irfftn(fft.rfftn(x.cuda()), s=shape), x)


def layouts() -> None:
    x = torch.randn(6, 8, 10, 12)
    y = x.cuda()
    for dim in range(4):
        same(fft.fft(y, dim=dim), fft.fft(x, dim=dim))
        same(fft.rfft(y[:, ::2, 1::3], dim=dim), fft.rfft(x[:, ::2, 1::3], dim=dim))
    for dims in ((0, 1), (3, 1), (2, 0, 3), (0, 1, 2, 3)):
        same(fft.fftn(y, dim=dims), fft.fftn(x, dim=dims))
        same(fft.rfftn(y.permute(3, 0, 2, 1), dim=dims), fft.rfftn(x.permute(3, 0, 2, 1), dim=dims))
    same(fft.fft(y[0, 0, 0].expand(3, 12)), fft.fft(x[0, 0, 0].expand(3, 12)))
    halves = fft.rfft(x[0, 0, :, :8].cuda().half())
    assert halves.dtype == torch.complex32
    exact = fft.rfft(x[0, 0, :, :8].half().float())
    assert torch.equal(torch.view_as_real(halves).cpu(), torch.view_as_real(exact).half())


def spectra_of_sound() -> None:
    sound = torch.randn(2, 4000)
    for size, hop in ((400, 160), (512, 128), (255, 64)):
        window = torch.hann_window(size)
        options = {"n_fft": size, "hop_length": hop}
        spectrum = torch.stft(sound.cuda(), window=window.cuda(), return_complex=True, **options)
        expected = torch.stft(sound, window=window, return_complex=True, **options)
        same(spectrum, expected)
        back = torch.istft(spectrum, window=window.cuda(), length=4000, **options)
        assert float((back.cpu() - sound).abs().max()) < 1e-5


def gradients() -> None:
    for call in (fft.fft, fft.rfft, fft.ihfft, fft.fft2, fft.rfftn):
        x = torch.randn(3, 4, 6, dtype=torch.float64, device="cuda", requires_grad=True)
        assert torch.autograd.gradcheck(call, x)
    for call in (fft.ifft, fft.irfft, fft.hfft, fft.irfft2):
        z = torch.randn(2, 4, 5, dtype=torch.complex128, device="cuda", requires_grad=True)
        assert torch.autograd.gradcheck(call, z)


class Listener(nn.Module):
    """Spectra, a mask for them, a long convolution in their domain, and sound again."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.mask = nn.Sequential(nn.Linear(33, 48), nn.ReLU(), nn.Linear(48, 33), nn.Sigmoid())
        self.kernel = nn.Parameter(torch.randn(300) * 0.05)

    def forward(self, sound: Tensor) -> Tensor:
        spectrum = torch.stft(sound, 64, 16, window=self.window, return_complex=True)
        spectrum = spectrum * self.mask(spectrum.abs().transpose(1, 2)).transpose(1, 2)
        clean = torch.istft(spectrum, 64, 16, window=self.window, length=sound.shape[1])
        size = sound.shape[1] + len(self.kernel) - 1
        both = fft.rfft(clean, n=size) * fft.rfft(self.kernel, n=size)
        return fft.irfft(both, n=size)[:, : sound.shape[1]]


def trained(device: str) -> tuple[list[float], str]:
    torch.manual_seed(1)
    model = Listener().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    clean = torch.sin(torch.arange(500) * torch.rand(4, 1)).to(device)
    noise = torch.randn(6, 4, 500).to(device)
    for step in range(6):
        loss = (model(clean + 0.3 * noise[step]) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(bytes(parameter.detach().cpu().reshape(-1).view(torch.uint8).tolist()))
    return losses, digest.hexdigest()


def models() -> None:
    got, digest = trained("cuda")
    expected, _ = trained("cpu")
    assert got[-1] < got[0]
    assert all(abs(a - b) < 1e-3 * abs(b) for a, b in zip(got, expected, strict=True))
    print(got, digest)


if __name__ == "__main__":
    torch.manual_seed(0)
    for check in (lines, grids, layouts, spectra_of_sound, gradients, models):
        print(check.__name__, flush=True)
        check()
