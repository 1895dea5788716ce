#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes per token that autograd saves in one transformer block, by torch's own saved-tensor hooks.

usage: saved_tensors.py > golden/saved_tensors.json

Storages are counted once, parameters left out. Dropout on a CPU saves its mask in the tensor's type
and norm statistics in bf16; CUDA kernels save a byte per element and fp32: those two are converted.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

TOKENS, SEQ = 512, 256


class RmsNorm(nn.Module):
    """transformers' LlamaRMSNorm."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        given = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * x.to(given)


class GeluNew(nn.Module):
    """transformers' NewGELUActivation."""

    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


def attend(q, k, v, is_math, dropout):
    if not is_math:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    w = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    w = w + torch.full(w.shape[-2:], -math.inf).triu(1).to(w.dtype)
    w = F.softmax(w, -1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(dropout(w) if dropout else w, v)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, f, self.heads, self.kv = c["hidden"], c["ffn"], c["heads"], c["kv_heads"]
        self.width, self.is_math = h // self.heads, c["attention"] == "math"
        self.q, self.o = (nn.Linear(h, h, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(h, self.kv * self.width, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(h, f, bias=False) for _ in range(2))
        self.down = nn.Linear(f, h, bias=False)
        self.first, self.second = RmsNorm(h), RmsNorm(h)

    def forward(self, x):
        b, s, h = x.shape
        y = self.first(x)
        q, k, v = (p(y).view(b, s, -1, self.width).transpose(1, 2) for p in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        x = x + self.o(attend(q, k, v, self.is_math, None).transpose(1, 2).reshape(b, s, h))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gpt2(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, f, self.heads = c["hidden"], c["ffn"], c["heads"]
        self.is_math = c["attention"] == "math"
        self.first, self.second = nn.LayerNorm(h), nn.LayerNorm(h)
        self.qkv, self.o = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, f), nn.Linear(f, h)
        self.gelu, self.dropout = GeluNew(), nn.Dropout(c["dropout"])

    def forward(self, x):
        b, s, h = x.shape
        parts = self.qkv(self.first(x)).split(h, 2)
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in parts)
        y = attend(q, k, v, self.is_math, self.dropout).transpose(1, 2).reshape(b, s, h)
        x = x + self.dropout(self.o(y))
        return x + self.dropout(self.down(self.gelu(self.up(self.second(x)))))


def masks_and_statistics(c, element):
    """Bytes per token that a CPU saves beyond what CUDA would."""
    if c["arch"] != "gpt2":
        return 0
    scores = c["heads"] * SEQ if c["attention"] == "math" else 0
    masks = (2 * c["hidden"] + scores) * (element - 1)
    return masks - (2 * 2 * (4 - element))


def count(c):
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[c["dtype"]]
    torch.manual_seed(0)
    block = {"llama": Llama, "gpt2": Gpt2}[c["arch"]](c).to(dtype)
    parameters = {p.untyped_storage().data_ptr() for p in block.parameters()}
    x = torch.randn(TOKENS // SEQ, SEQ, c["hidden"], dtype=dtype, requires_grad=True)
    seen = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in parameters:
            seen[storage.data_ptr()] = (storage.nbytes(), t)  # the tensor keeps its address taken
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        block(x)
    bytes_per_token = sum(n for n, _ in seen.values()) / TOKENS
    return bytes_per_token - masks_and_statistics(c, x.element_size())


def main():
    llama = {"arch": "llama", "hidden": 512, "ffn": 1408, "heads": 8, "kv_heads": 4, "dropout": 0}
    gpt2 = {"arch": "gpt2", "hidden": 512, "ffn": 2048, "heads": 8, "kv_heads": 8, "dropout": 0.1}
    cases = [
        dict(llama, attention="flash", dtype="bf16"),
        dict(llama, attention="flash", dtype="fp32"),
        dict(llama, attention="math", dtype="bf16"),
        dict(gpt2, attention="flash", dtype="bf16"),
        dict(gpt2, attention="math", dtype="bf16"),
    ]
    for c in cases:
        c["seq"], c["bytes_per_token"] = SEQ, count(c)
    json.dump({"torch": torch.__version__, "cases": cases}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
