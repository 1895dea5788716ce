# SPDX-License-Identifier: Apache-2.0
"""Ratios against what others reach, alternated in one run: peers.py SHARDBENCH ring|fio [FOLDER].

ring: explicit-ring reduce-scatter over the library's at two ranks, at least 2.
fio:  storage bandwidth over fio's at equal block, depth and time, at least 0.97; CPU time per
      request at most fio's. FOLDER is a tmpfs by default: a shared disk varies by a third.
"""
import json
import shutil
import statistics
import subprocess
import sys
import time

BENCH = sys.argv[1]
PAIRS = 9
SIZE = 256 << 20


def bench(*arguments):
    done = subprocess.run([BENCH, *arguments, "--json", "-"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"]


def ring():
    ratios = []
    for _ in range(5):
        by = {r["algorithm"]: r for r in bench(
            "collectives", "--op", "reduce_scatter", "-d", "fp32", "-b", "16MiB", "-e", "16MiB",
            "--ranks", "2", "--budget", "1s", "--target", "0.01")}
        ratios.append(by["library"]["median_s"] / by["ring"]["median_s"])
    ratio = statistics.median(ratios)
    print(json.dumps({"benchmark": "ring", "over_library": round(ratio, 3), "runs": ratios}))
    return ratio >= 2


def fio(folder, pattern):
    words = ["fio", "--name=x", f"--directory={folder}", f"--size={SIZE}", "--bs=1m",
             "--iodepth=16", "--ioengine=io_uring", "--fixedbufs", "--direct=1", "--time_based",
             "--runtime=1", f"--rw={pattern}", "--output-format=json", "--unlink=1"]
    done = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    job = done["jobs"][0]
    side = job[pattern]
    cpu_s = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return side["bw_bytes"], cpu_s / side["total_ios"]


def ours(folder, pattern):
    (r,) = bench("nvme", "--folder", folder, "--pattern", pattern, "--max-bytes", str(SIZE),
                 "--budget", "1s", "--target", "0", "--no-verify")
    return r["algbw_bytes_per_s"], r["cpu_s_per_io"]


def storage(folder):
    good = True
    for pattern in ("read", "write"):
        rates, costs = [], []
        for i in range(PAIRS):
            order = (fio, ours) if i % 2 else (ours, fio)
            got = {f.__name__: f(folder, pattern) for f in order}
            rates.append(got["ours"][0] / got["fio"][0])
            costs.append(got["ours"][1] / got["fio"][1])
            time.sleep(0.1)
        rate, cost = statistics.median(rates), statistics.median(costs)
        print(json.dumps({"benchmark": "fio", "folder": folder, "pattern": pattern,
                          "pairs": PAIRS, "rate_over_fio": round(rate, 3),
                          "cpu_per_io_over_fio": round(cost, 3)}))
        good = good and rate >= 0.97 and cost <= 1
    return good


if sys.argv[2] == "ring":
    sys.exit(0 if ring() else 1)
if shutil.which("fio") is None:
    print("skipped: no fio")
    sys.exit(77)
sys.exit(0 if storage(sys.argv[3] if len(sys.argv) > 3 else "/dev/shm") else 1)
