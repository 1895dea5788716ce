# SPDX-License-Identifier: Apache-2.0
"""A llama-like decoder in plain torch with Hugging Face's tensors in their order of registration."""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


def config(name):
    return json.load(open(os.path.join(HERE, "models", name + ".json")))


class Norm(nn.Module):
    """RMS norm in fp32, as transformers' LlamaRMSNorm computes it."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        given = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(given)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.heads, self.kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.width = c.get("head_dim") or h // self.heads
        self.q_proj = nn.Linear(h, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(h, self.kv * self.width, bias=False)
        self.v_proj = nn.Linear(h, self.kv * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, h, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (
            p(x).view(b, s, -1, self.width).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, s, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, f = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(h, f, bias=False)
        self.up_proj = nn.Linear(h, f, bias=False)
        self.down_proj = nn.Linear(f, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn = Attention(c)
        self.mlp = Mlp(c)
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, v = c["hidden_size"], c["vocab_size"]
        self.embed_tokens = nn.Embedding(v, h)
        self.layers = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(h, c["rms_norm_eps"])
        self.lm_head = nn.Linear(h, v, bias=False)
        if c["tie_word_embeddings"]:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def loss_of(logits, tokens):
    """Next-token cross entropy in fp32, as transformers computes it."""
    return F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
