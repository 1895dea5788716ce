# SPDX-License-Identifier: Apache-2.0
"""Everything at once keeps its time, and the page is made of what it found: whole.py SHARDBENCH."""
import json
import os
import subprocess
import sys
import tempfile
import time

ENV = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", FAKEGPU_DEVICES="0")
WITHIN_S, SLACK_S = 8, 60  # a point's set-up is not cut short, and test machines are busy

with tempfile.TemporaryDirectory() as folder:
    page = os.path.join(folder, "page")
    before = time.time()
    done = subprocess.run([sys.argv[1], "all", "--force", "--within", f"{WITHIN_S}s", "--max-bytes",
                           "64MiB", "--folder", folder, "--report", page], capture_output=True, text=True,
                          timeout=110, env=ENV)
    took = time.time() - before
    assert done.returncode == 0, done.stderr
    assert took < WITHIN_S + SLACK_S, took
    results = json.load(open(os.path.join(page, "result.json")))["results"]
    assert results and all(r["errors"] == 0 for r in results)
    assert os.path.getsize(os.path.join(page, "index.html")) > 1000
    assert os.listdir(folder) == ["page"], os.listdir(folder)

    # A point that would take ten minutes ends with what it has, and says that it is not settled.
    before = time.time()
    done = subprocess.run([sys.argv[1], "copy", "--bytes", "64MiB", "--backend", "host", "--force", "--within",
                           "1s", "--budget", "600s", "--target", "0", "--max-iterations", "1000000",
                           "--json", "-"], capture_output=True, text=True, timeout=110, env=ENV)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["results"]
    assert time.time() - before < SLACK_S and len(rows) == 1 and not rows[0].get("confident"), rows
    assert "left out: the time is up" in done.stderr, done.stderr
print("ok")
