"""A script as others write it: data loader with workers and pinned memory, gradient accumulation,
channels-last convolutions, a moving average of the weights, evaluation, a checkpoint."""

from __future__ import annotations

import io

import torch
from public_offload import digest
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16, 10),
    )


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 3, 12, 12), torch.randint(10, (128,)))
    loader = DataLoader(
        data,
        batch_size=32,
        shuffle=True,
        num_workers=2,
        pin_memory=True,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(2),
    )
    net = network().cuda().to(memory_format=torch.channels_last)
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, amsgrad=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=4)
    for _ in range(2):
        for i, (x, y) in enumerate(loader):
            x = x.to("cuda", non_blocking=True, memory_format=torch.channels_last)
            y = y.cuda(non_blocking=True)
            loss = nn.functional.cross_entropy(net(x), y, label_smoothing=0.1) / 2
            loss.backward()
            if i % 2 == 1:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                average.update_parameters(net)
                print("loss", loss.item().hex())
        net.eval()
        with torch.inference_mode():
            right = sum((net(x.cuda()).argmax(1) == y.cuda()).sum() for x, y in loader)
        print("right", int(right))
        net.train()
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    fresh = network().cuda()
    fresh.load_state_dict(torch.load(file, map_location="cuda"))
    print(digest(net), digest(average), digest(fresh))


if __name__ == "__main__":
    main()
