#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: parse_configs.py DIR: every .json, .yaml and .toml of DIR parses with its stock parser."""
import json
import pathlib
import sys

count = 0
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    text = path.read_text()
    if path.suffix == ".json":
        value = json.loads(text)
    elif path.suffix == ".yaml":
        try:
            import yaml
        except ImportError:
            print("python3-yaml is missing: YAML not checked")
            continue
        value = yaml.safe_load(text)
    else:
        try:
            import tomllib
        except ImportError:
            print("tomllib is missing: TOML not checked")
            continue
        value = tomllib.loads(text)
    if not isinstance(value, dict) or not value:
        sys.exit(f"{path.name}: not a map")
    count += 1
print(f"{count} files parsed")
