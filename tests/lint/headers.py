#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile every header of planner/, bench/, reports/ and kernels/ alone.

headers.py ROOT BUILD COMPILER [ARGUMENT...]
A header that needs a library which is not installed is named and passed over.
"""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DIRS = ("planner", "bench", "reports", "kernels")


def compile_alone(job):
    compiler, root, header = job
    text = f'#include "{header}"\n#include "{header}"\n'  # twice: its guard must hold
    run = subprocess.run(compiler, input=text, capture_output=True, text=True, check=False)
    missing = re.search(r"fatal error: '?([\w./]+)'?(?::| file)", run.stderr)
    if missing and not any((root / d / missing.group(1)).exists() for d in ("", *DIRS)):
        return "SKIP", header, f"{missing.group(1)} is not installed"
    return ("OK" if run.returncode == 0 else "FAIL"), header, run.stderr


def main(root, build, *compiler):
    root, build = Path(root), Path(build)
    includes = [f"-I{base / d}" for base in (root, build) for d in ("planner", ".", "bench")]
    compiler = [*compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
                "-fsyntax-only", *includes, "-x", "c", "-"]
    names = sorted(p for d in DIRS for p in (root / d).rglob("*.h"))
    jobs = [(compiler, root, str(p)) for p in names]
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for result, header, text in pool.map(compile_alone, jobs):
            if result != "OK":
                print(f"{result} {header}: {text}")
            failed += result == "FAIL"
    print(f"{len(jobs)} headers, {failed} failed")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
