#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare every C file with what clang-format would write. Status 77: cannot tell here."""
import re
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "14"  # other versions break some lines elsewhere
DIRS = ("planner", "bench", "reports", "kernels", "tests")


def main(root):
    tool = shutil.which(f"clang-format-{VERSION}") or shutil.which("clang-format")
    version = tool and subprocess.run([tool, "--version"], capture_output=True, text=True,
                                      check=True).stdout
    if not version or not re.search(rf"version {VERSION}\.", version):
        print(f"clang-format {VERSION} is not installed")
        return 77
    files = sorted(str(p) for d in DIRS for p in (Path(root) / d).rglob("*.[ch]"))
    run = subprocess.run([tool, "--dry-run", "-Werror", *files], cwd=root, capture_output=True,
                         text=True, check=False)
    first = {}
    for line in run.stderr.splitlines():
        if "error:" in line:
            first.setdefault(line.split(":")[0], line.split(": error")[0])
    for place in first.values():
        print(f"{place}: clang-format -i would change it")
    return 1 if run.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
