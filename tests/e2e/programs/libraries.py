"""What needs a library that a soft GPU lacks fails with the function's name, and nothing else does."""

import torch
from torch.profiler import ProfilerActivity, profile

torch.backends.cudnn.enabled = True  # as many programs do, to be sure
torch.backends.cudnn.benchmark = True
eye = torch.eye(4, device="cuda")
attempts = {
    "fft": lambda: torch.fft.fft(eye),
    "sparse": lambda: torch.sparse.mm(eye.to_sparse_csr(), eye),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(name, "works")
    except RuntimeError as error:
        print(name, "fails:", "NOT_SUPPORTED" in str(error) or "cu" in str(error))
# Dense solvers work.
print("eigenvalues", torch.linalg.eigh(eye + 1).eigenvalues.sum().item())
print("singular", torch.linalg.svdvals(eye + 1).sum().item())
systems = torch.stack([torch.full((4, 4), n) + torch.eye(4) for n in (1.0, 2.0, 3.0)]).cuda()
factors, pivots = torch.linalg.lu_factor(systems)
back = torch.linalg.lu_solve(factors, pivots, systems @ torch.ones(4, 2, device="cuda"))
print("solved", round(float((back - 1).abs().max()), 4))
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    total = (eye @ eye).sum()
image = torch.arange(16.0, device="cuda").reshape(1, 1, 4, 4)
print("convolution", float(torch.nn.functional.conv2d(image, image[:, :, :3, :3]).sum()))
print("sum", float(total), torch.backends.cudnn.version())
