# SPDX-License-Identifier: Apache-2.0
"""Counts live tensor storages under a dispatch mode: what an allocator would hold, on a CPU.

Every storage is charged to the place that made it ("file:function") until someone names it. The
peak of each phase keeps the whole account of that moment.
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

    def __enter__(self):
        ledger = self

        def resize_(storage, size):
            done = RESIZE(storage, size)
            ledger.note(storage)
            return done

        torch.UntypedStorage.resize_ = resize_
        return super().__enter__()

    def __exit__(self, *why):
        torch.UntypedStorage.resize_ = RESIZE
        return super().__exit__(*why)

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
            row = self.live[key] = [forget, 0, label or self.place()]
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
        return sum(self.labels.values())

    def look(self):
        total = self.total()
        if self.phase and total > self.peaks.get(self.phase, (-1,))[0]:
            self.peaks[self.phase] = (total, self.account())

    def account(self):
        return {k: v for k, v in self.labels.items() if v}

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
