#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every shell script parses; with shellcheck installed it is also free of its warnings."""
import shutil
import subprocess
import sys
from pathlib import Path


def main(root):
    root = Path(root)
    scripts = sorted([*root.glob("scripts/*.sh"), *root.glob("tests/**/*.sh"), root / ".ci/run"])
    commands = [["bash", "-n", str(p)] for p in scripts]
    if shutil.which("shellcheck"):
        commands.append(["shellcheck", "-x", "-S", "warning", "-s", "bash", *map(str, scripts)])
    return 1 if any(subprocess.run(c, cwd=root, check=False).returncode for c in commands) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
