# SPDX-License-Identifier: Apache-2.0
"""Collectives on three ranks give what they must, and a plan's bytes are the bytes sent."""
import json
import os
import subprocess
import sys
import tempfile

BENCH = sys.argv[1]
ENV = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")


def run(arguments):
    done = subprocess.run([BENCH] + arguments + ["--force", "--json", "-", "--budget", "1ms", "-n",
                                                 "2", "--max-iterations", "20"],
                          capture_output=True, text=True, timeout=100, env=ENV)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def collectives():
    results = run(["collectives", "--ranks", "3", "-b", "60KiB", "-e", "60KiB", "-d",
                   "bf16,fp16,fp32,int8", "--place", "both"])["results"]
    # three collectives, two algorithms, two places, four types
    assert len(results) == 3 * 2 * 2 * 4, len(results)
    assert all(r["errors"] == 0 and r["ranks"] == 3 and r["median_s"] > 0 for r in results)
    for r in results:
        factor = 4 / 3 if r["kind"] == "all_reduce" else 2 / 3
        expected = r["payload_bytes"] / r["median_s"] * factor
        assert abs(r["busbw_bytes_per_s"] / expected - 1) < 1e-6
        if r["algorithm"] == "ring":
            assert abs(r["sent_bytes"] - r["payload_bytes"] * factor) < 1, r


def transfer(kind, payload, group="world", size=4):
    return {"phase": "step", "kind": kind, "what": "x", "dtype": "bf16", "group": group,
            "group_size": size, "count": 2, "payload_bytes": payload, "sent_bytes": 0,
            "link": "inter_node"}


def plan(*transfers):
    return {"schema": "shardplan.plan/1", "model": {"name": "m", "parameters": 100000},
            "plans": [{"strategy": "s", "volume": {"transfers": list(transfers)}}]}


def confirm(document):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        with open(path, "w") as f:
            json.dump(document, f)
        return run(["confirm", path, "--ranks", "4"])


def three_to_two():
    psi = 200000
    zero3 = confirm(plan(transfer("all_gather", psi), transfer("all_gather", psi),
                         transfer("reduce_scatter", psi)))["totals"]
    ddp = confirm(plan(transfer("all_reduce", psi)))["totals"]
    assert abs(zero3["measured_bytes"] - 3 * psi * 3 / 4) <= 3 * 32, zero3
    assert abs(ddp["measured_bytes"] - 2 * psi * 3 / 4) <= 2 * 32, ddp
    assert abs(zero3["measured_bytes"] / ddp["measured_bytes"] - 1.5) < 0.01


def groups():
    document = confirm(plan(transfer("reduce_scatter", 80000, "shard", 2),
                            transfer("all_reduce", 40000, "replica", 2)))
    shard, replica = document["transfers"]
    assert shard["measured_bytes"] == 80000 / 2, shard
    assert replica["measured_bytes"] == 2 * 40000 / 2, replica
    assert shard["errors"] == 0 and replica["errors"] == 0


SMALL = ["collectives", "--op", "all_gather", "-b", "8KiB", "-e", "8KiB", "--force", "-q", "--budget", "1ms"]


def strangers():
    """What srun --mpi=none leaves behind, and a launcher that speaks another protocol than this MPI."""
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}
    with tempfile.TemporaryDirectory() as folder:
        srun = os.path.join(folder, "srun")
        with open(srun, "w") as f:
            f.write("#!/bin/sh\nfor i in 0 1; do SLURM_PROCID=$i SLURM_LOCALID=$i \"$@\" & pids=\"$pids $!\"; done\n"
                    "for p in $pids; do wait $p || status=$?; done; exit $status\n")
        os.chmod(srun, 0o755)
        done = subprocess.run([srun, BENCH, *SMALL], capture_output=True, text=True, timeout=60, env={**ENV, **step})
        assert done.returncode == 4, done
        assert done.stderr.count("srun started 2 tasks that know nothing of each other") == 2, done.stderr
        assert "--mpi=pmix" in done.stderr and done.stdout == "", done
        # A batch script is no step, whatever its allocation: it may start ranks of its own.
        batch = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
        done = subprocess.run([BENCH, *SMALL, "--ranks", "2"], capture_output=True, text=True, timeout=60,
                              env={**ENV, **batch})
        assert done.returncode == 0, done.stderr
    foreign = {"PMI_RANK": "0", "PMI_SIZE": "2"}
    done = subprocess.run([BENCH, *SMALL], capture_output=True, text=True, timeout=60, env={**ENV, **foreign})
    assert done.returncode == 4 and "the launcher started 2 processes, but this MPI sees one" in done.stderr, done.stderr


def slurm():
    """A real Slurm, where there is one: PMIx joins the tasks, and without it nobody measures alone."""
    def srun(*words):
        return subprocess.run(["srun", "-n", "2", *words], capture_output=True, text=True, timeout=100, env=ENV)
    try:
        plugins = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=20)
        works = srun("true").returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    if not works:
        print("no Slurm here: only its environment was tried")
        return
    if "pmix" in plugins.stdout + plugins.stderr:
        done = srun("--mpi=pmix", BENCH, *SMALL, "--json", "-")
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["results"]  # one document: by rank 0
        assert rows and all(r["ranks"] == 2 and r["errors"] == 0 for r in rows), rows
    done = srun("--mpi=none", BENCH, *SMALL)
    assert done.returncode == 4 and "know nothing of each other" in done.stderr, done.stderr
    print("Slurm: srun --mpi=pmix and --mpi=none")


collectives()
strangers()
slurm()
three_to_two()
groups()
print("ok")
