#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameter inventories as Hugging Face transformers registers them, for tests/catalog.

usage: inventory.py MODELS_DIR > tests/catalog/inventories.tsv

Needs torch and transformers (their versions stand in the output's first line). Every catalog model
that transformers can build from its config is instantiated on the meta device: no weights.
"""
import json
import os
import re
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

BLOCK = re.compile(r"^(?:.*\.)?(?:layers|h|blocks)\.(\d+)\.(.+)$")
EXPERT = re.compile(r"\.experts\.(\d+)\.")


def build(path):
    data = json.load(open(path))
    data = {k: v for k, v in data.items() if not k.startswith("_")}
    data = data.get("text_config", data)
    kind = data.pop("model_type")
    config = AutoConfig.for_model(kind, **data)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def rows(model):
    """(unit, tensor, shape) once per distinct block, in registration order, and the total."""
    total, units, blocks = 0, [], {}
    for name, parameter in model.named_parameters():
        total += parameter.numel()
        shape = "x".join(map(str, parameter.shape))
        match = BLOCK.match(name)
        if not match:
            units.append(("other", name, shape))
            continue
        layer, tensor = int(match.group(1)), EXPERT.sub(".experts.*.", match.group(2))
        entry = (tensor, shape)
        block = blocks.setdefault(layer, [])
        if entry not in block:
            block.append(entry)
    seen = set()
    for layer in sorted(blocks):
        key = tuple(blocks[layer])
        if key in seen:
            continue
        seen.add(key)
        kind = "moe" if any(".experts." in tensor for tensor, _ in key) else "dense"
        units += [(kind, tensor, shape) for tensor, shape in key]
    return total, units


def main(folder):
    print(f"# transformers {transformers.__version__}, torch {torch.__version__}")
    for file in sorted(os.listdir(os.path.join(folder, "transformers"))):
        name = file[: -len(".json")]
        if name.startswith("mpt-bench-"):
            continue  # llm-foundry's own MPT: transformers has no learned positions or biases for it
        try:
            total, units = rows(build(os.path.join(folder, "transformers", file)))
        except Exception as error:  # a type this version lacks is reported, not compared
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        print(f"{name}\ttotal\t{total}\t")
        for unit in units:
            print("\t".join((name, *unit)))


if __name__ == "__main__":
    main(sys.argv[1])
