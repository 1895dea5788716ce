# SPDX-License-Identifier: Apache-2.0
"""Counts live tensor storages under a dispatch mode: what an allocator would hold, on a CPU.

Every storage is charged to the place that made it ("file:function") until someone names it. The
peak of each phase keeps the whole account of that moment. Both ends of an offload are host memory
here: what is labelled "host" stays out of totals and peaks, and moves across count as copies.
"""
import collections
import os
import sys
import weakref

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

# Frames that only pass a call on.
PASSING = ("ledger.py", "_python_dispatch.py", "_ops.py", "_tensor.py", "_compile.py",
           "_contextlib.py", "eval_frame.py", "storage.py", "nvtx.py", "distributed_c10d.py",
           "c10d_logger.py", "comm.py", "torch.py", "_utils.py")
RESIZE = torch.UntypedStorage.resize_
MOVE = torch.Tensor.to
HOST = "host"
ATEN = torch.ops.aten
# Only sizes count: matmuls return a constant (no NaN, no zero norm).
SKIPPED = {
    ATEN.mm.default: lambda a, b: a.new_full((a.shape[0], b.shape[1]), 1e-3),
    ATEN.bmm.default: lambda a, b: a.new_full((*a.shape[:2], b.shape[2]), 1e-3),
}


class Ledger(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.live = {}  # id of the storage: [reference, bytes, label]
        self.labels = collections.Counter()
        self.phase, self.peaks = None, {}
        self.copies = {"h2d": 0, "d2h": 0}
        self.offloads = None  # which moves between devices are looked at: "up", "both"
        self.everything = None  # a label for all that is made now

    def __enter__(self):
        ledger = self

        def resize_(storage, size):
            done = RESIZE(storage, size)
            ledger.note(storage)
            return done

        torch.UntypedStorage.resize_ = resize_
        torch.Tensor.to = lambda t, *args, **kwargs: ledger.move(t, *args, **kwargs)
        return super().__enter__()

    def __exit__(self, *why):
        torch.UntypedStorage.resize_ = RESIZE
        torch.Tensor.to = MOVE
        return super().__exit__(*why)

    def on_host(self, t):
        if torch._C._functorch.is_batchedtensor(t):
            return False  # transformers builds its masks with vmap
        row = self.live.get(id(t.untyped_storage()))
        return row is not None and row[2] == HOST

    def move(self, t, *args, **kwargs):
        """A move to a device is a copy to the other side, whatever the devices are called here."""
        asked = isinstance(args[0] if args else kwargs.get("device"), (str, torch.device))
        up = self.offloads and asked and not isinstance(t, DTensor) and self.on_host(t)
        if not up and not (self.offloads == "both" and asked and not isinstance(t, DTensor)):
            return MOVE(t, *args, **kwargs)
        moved = MOVE(t, *args, **kwargs)
        moved = moved.clone() if moved.data_ptr() == t.data_ptr() else moved
        self.copies["h2d" if up else "d2h"] += moved.numel() * moved.element_size()
        if not up:
            self.name([moved], HOST)
        return moved

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # it unwraps itself first: what it then calls comes back here
        out = (SKIPPED.get(op) or op)(*args, **(kwargs or {}))
        for t in tree_iter(out):
            if isinstance(t, torch.Tensor) and not isinstance(t, DTensor):
                self.note(t.untyped_storage())
        return out

    def note(self, storage, label=None):
        if storage.device.type == "meta":
            return
        row = self.live.get(id(storage))
        if row is None:
            key = id(storage)
            forget = weakref.ref(storage, lambda _: self.drop(key))
            row = self.live[key] = [forget, 0, label or self.everything or self.place()]
        if label and label != row[2]:
            self.labels[row[2]] -= row[1]
            self.labels[label] += row[1]
            row[2] = label
        if storage.nbytes() != row[1]:
            self.labels[row[2]] += storage.nbytes() - row[1]
            row[1] = storage.nbytes()
            self.look()

    def name(self, tensors, label):
        """Charges these tensors' storages to a class by name."""
        for t in tensors:
            if isinstance(t, torch.Tensor):
                local = t.to_local() if isinstance(t, DTensor) else t
                self.note(local.untyped_storage(), label)

    def drop(self, key):
        _, size, label = self.live.pop(key)
        self.labels[label] -= size

    @staticmethod
    def place():
        frame = sys._getframe(2)
        while frame and os.path.basename(frame.f_code.co_filename) in PASSING:
            frame = frame.f_back
        code = frame.f_code
        place = f"{os.path.basename(code.co_filename)}:{code.co_name}"
        return place if code.co_name != "allocate" else place + ":" + frame.f_back.f_code.co_name

    def total(self):
        return sum(size for label, size in self.labels.items() if label != HOST)

    def look(self):
        total = self.total()
        if self.phase and total > self.peaks.get(self.phase, (-1,))[0]:
            self.peaks[self.phase] = (total, self.account())

    def account(self):
        return {k: v for k, v in self.labels.items() if v and k != HOST}

    def enter(self, phase):
        """From here on peaks belong to this phase."""
        self.phase = phase
        self.look()


def states(account):
    """What was named, alone: the rest waits for the garbage collector."""
    return {label: size for label, size in account.items() if size and ":" not in label}


def classes(account, places):
    """Labels to classes: what was named, what its place says, else work under way."""
    out = {"total": sum(account.values())}
    for label, size in account.items():
        name = label if ":" not in label else places.get(label, "working")
        out[name] = out.get(name, 0) + size
    return out
