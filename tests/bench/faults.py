# SPDX-License-Identifier: Apache-2.0
"""One fault per run: faults.py SHARDBENCH NAME. Exit 77 where the machine cannot make the fault."""
import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

SKIP = 77
DEADLINE_S = 60
BENCH = sys.argv[1]
ENV = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")


def need(condition, why):
    if not condition:
        print("skipped:", why)
        sys.exit(SKIP)


def start(arguments, **more):
    return subprocess.Popen([BENCH] + arguments + ["--force"], stdout=subprocess.PIPE, env=ENV,
                            stderr=subprocess.PIPE, text=True, **more)


def end(process, status):
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == status, f"status {process.returncode}, not {status}\n{out}\n{err}"
    return out, err


def results(path):
    """Results of a JSON-lines file; every line must be whole."""
    lines = open(path).read().splitlines()
    assert json.loads(lines[0])["schema"] == "shardplan.measurement/1"
    return [json.loads(line) for line in lines[1:]]


def wait_for_results(path, count, process):
    limit = time.time() + DEADLINE_S
    while time.time() < limit:
        if os.path.exists(path) and len(open(path).read().splitlines()) > count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("no results in time")


def descendants(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in open(f"/proc/{pid}/task/{task}/children").read().split():
            found += [int(child)] + descendants(int(child))
    return found


def ranks_of(process):
    """Processes under mpirun that run the program."""
    name = os.path.basename(BENCH)
    return [p for p in descendants(process.pid)
            if os.path.basename(os.readlink(f"/proc/{p}/exe")) == name]


def slow_collectives(out):
    """Points that last long enough to be interrupted."""
    return start(["collectives", "-b", "8KiB", "-e", "8MiB", "--ranks", "2", "--target", "0",
                  "--budget", "0.7s", "--max-iterations", "1000000", "--out", out])


def rank_killed(folder):
    out = os.path.join(folder, "r.jsonl")
    process = slow_collectives(out)
    wait_for_results(out, 1, process)
    os.kill(ranks_of(process)[-1], signal.SIGKILL)
    _, err = end(process, 4)
    assert "rank died" in err, err
    assert len(results(out)) >= 1
    again = start(["collectives", "-b", "8KiB", "-e", "8KiB", "--ranks", "2", "--op", "all_gather",
                   "--budget", "0.1s", "--out", out, "--resume"])
    end(again, 0)


def interrupted(folder):
    out = os.path.join(folder, "r.jsonl")
    process = slow_collectives(out)
    wait_for_results(out, 1, process)
    process.send_signal(signal.SIGINT)
    end(process, 130)
    assert len(results(out)) >= 1


def interrupted_nvme(folder):
    out = os.path.join(folder, "r.jsonl")
    place = os.path.join(folder, "place")
    os.mkdir(place)
    process = start(["nvme", "--folder", place, "--max-bytes", "64MiB", "--budget", "1s",
                     "--target", "0", "--out", out])
    wait_for_results(out, 1, process)
    process.send_signal(signal.SIGINT)
    end(process, 130)
    assert len(results(out)) >= 1
    assert os.listdir(place) == []


def killed_nvme(folder):
    """The file is gone, and its space free, even after SIGKILL."""
    place = os.path.join(folder, "place")
    os.mkdir(place)
    process = start(["nvme", "--folder", place, "--max-bytes", "64MiB", "--budget", "30s",
                     "--target", "0", "--pattern", "read"])
    limit = time.time() + DEADLINE_S
    while time.time() < limit and not any(
            place in os.readlink(f"/proc/{process.pid}/fd/{fd}")
            for fd in os.listdir(f"/proc/{process.pid}/fd")):
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert os.listdir(place) == []


def mount_tmpfs(place, options):
    need(os.geteuid() == 0, "mounting needs root")
    os.makedirs(place, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place],
                          capture_output=True)
    need(done.returncode == 0, "mount refused")


def no_space(folder):
    place = os.path.join(folder, "full")
    mount_tmpfs(place, "size=24m")
    try:
        process = start(["nvme", "--folder", place, "--max-bytes", "64MiB", "--fault", "nospace"])
        _, err = end(process, 4)
        assert "No space left" in err, err
        assert os.listdir(place) == []
        room = os.statvfs(place)
        assert room.f_bavail == room.f_blocks
    finally:
        subprocess.run(["umount", place])


def too_little_space(folder):
    place = os.path.join(folder, "small")
    mount_tmpfs(place, "size=24m")
    try:
        _, err = end(start(["nvme", "--folder", place]), 4)
        assert "quarter of the free space" in err, err
    finally:
        subprocess.run(["umount", place])


def no_output(_):
    """Results that would have nowhere to go are said before anything is measured."""
    _, err = end(start(["adam", "--out", "/nonexistent/results.jsonl"]), 4)
    assert "/nonexistent/results.jsonl" in err, err


def read_only(folder):
    place = os.path.join(folder, "ro")
    mount_tmpfs(place, "ro,size=256m")
    try:
        _, err = end(start(["nvme", "--folder", place, "--max-bytes", "64MiB"]), 4)
        assert "Read-only" in err, err
    finally:
        subprocess.run(["umount", place])


def write_fails(folder):
    out = os.path.join(folder, "r.jsonl")
    process = start(["nvme", "--folder", folder, "--max-bytes", "64MiB", "--pattern", "read,write",
                     "--budget", "0.2s", "--fault", "write-eio", "--out", out])
    _, err = end(process, 4)
    assert "write: Input/output error" in err, err
    assert [r["direction"] for r in results(out)] == ["read"]
    assert os.listdir(folder) == ["r.jsonl"]


def read_fails(folder):
    """A file system on a loop device whose file is cut short meanwhile."""
    need(os.geteuid() == 0, "loop devices need root")
    image, place, out = (os.path.join(folder, n) for n in ("image", "place", "r.jsonl"))
    os.mkdir(place)
    with open(image, "wb") as f:
        f.truncate(512 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-F", image], capture_output=True)
    need(made.returncode == 0, "no mkfs.ext4")
    need(subprocess.run(["mount", "-o", "loop", image, place],
                        capture_output=True).returncode == 0, "no loop devices")
    try:
        process = start(["nvme", "--folder", place, "--max-bytes", "64MiB", "--pattern",
                         "read,mixed", "--budget", "2s", "--target", "0", "--out", out])
        wait_for_results(out, 1, process)
        os.truncate(image, 4096)
        _, err = end(process, 4)
        assert "Input/output error" in err, err
        assert [r["direction"] for r in results(out)] == ["read"]
    finally:
        subprocess.run(["umount", "-l", place])


def refuse_io_uring():
    """In the child: every io_uring_setup fails with EPERM."""
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    packed = b"".join(struct.pack("HBBI", *line) for line in code)
    buffer = ctypes.create_string_buffer(packed)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code),
                                                      ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        os._exit(SKIP)


def io_uring_refused(folder):
    process = start(["nvme", "--folder", folder, "--max-bytes", "64MiB", "--pattern", "read",
                     "--budget", "0.2s", "--json", "-"], preexec_fn=refuse_io_uring)
    out, err = process.communicate(timeout=DEADLINE_S)
    need(process.returncode != SKIP, "no seccomp")
    assert process.returncode == 0, err
    (result,) = json.loads(out)["results"]
    assert result["protocol"] == "pread" and "not io_uring" in result["note"], result
    assert result["errors"] == 0


def wrong_contents(folder):
    out, err = end(start(["collectives", "--backend", "null", "--fault", "null-wrong", "-b", "8KiB",
                          "-e", "8KiB", "--budget", "0.1s", "--json", "-"]), 1)
    assert json.loads(out)["results"][0]["errors"] > 0
    assert "arrived wrong" in err


def hung_ranks(folder):
    """Ranks that stop answering are ended, not waited for."""
    out = os.path.join(folder, "r.jsonl")
    process = start(["collectives", "-b", "8KiB", "-e", "8MiB", "--ranks", "2", "--target", "0",
                     "--budget", "0.5s", "--max-iterations", "1000000", "--timeout", "3s",
                     "--out", out])
    wait_for_results(out, 1, process)
    for rank in ranks_of(process):
        os.kill(rank, signal.SIGSTOP)
    _, err = end(process, 4)
    assert "finished nothing" in err, err
    assert len(results(out)) >= 1


def out_of_memory(folder):
    _, err = end(start(["collectives", "--backend", "null", "--fault", "null-short"]), 4)
    assert "no memory" in err, err


with tempfile.TemporaryDirectory() as scratch:
    globals()[sys.argv[2]](scratch)
print("ok")
