"""Whoever has waited for an event, in whatever way, finds it complete; and its stream idle."""

import torch

x = torch.randn(1000, device="cuda")
side = torch.cuda.Stream()
wrong = []
for i in range(600):
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    x.add_(1)
    end.record()
    way = ("device", "stream", "event", "other stream")[i % 4]
    if way == "device":
        torch.cuda.synchronize()
    elif way == "stream":
        torch.cuda.current_stream().synchronize()
    elif way == "event":
        end.synchronize()
    else:
        side.wait_event(end)
        side.synchronize()
    if not (begin.query() and end.query()):
        wrong.append((way, "query"))
    elif begin.elapsed_time(end) < 0:
        wrong.append((way, "time"))
    elif way == "event" and not torch.cuda.current_stream().query():
        wrong.append((way, "stream"))
print("wrong", wrong)
