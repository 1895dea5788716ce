# SPDX-License-Identifier: Apache-2.0
"""check.sh's own logic on virtual GPUs: test_check.py CHECK SHARDBENCH-FAKEGPU SHARDPLAN NAME."""
import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time

CHECK, BENCH, PLAN = map(os.path.abspath, sys.argv[1:4])


MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
         "hidden_act": "silu"}


def settings(folder, deadline=150, path=None, **fakegpu):
    env = dict(os.environ, CHECK_BENCH=BENCH, CHECK_PLAN=PLAN, CHECK_BYTES="64KiB", CHECK_SMALL="64KiB", CHECK_BUDGET="0.01s",
               CHECK_FLAGS="--force -n 3", CHECK_STORAGE="32MiB", CHECK_GEMM="--shape 64x64x64",
               CHECK_MODEL=os.path.join(folder, "config.json"),
               CHECK_DEADLINE=str(deadline), ASAN_OPTIONS="detect_leaks=0")
    env.update({"FAKEGPU_" + k.upper(): str(v) for k, v in fakegpu.items()})
    os.makedirs(folder, exist_ok=True)
    with open(env["CHECK_MODEL"], "w") as f:
        json.dump(MODEL, f)
    if path:
        env["PATH"] = path + ":" + env["PATH"]
    return env


def run(folder, status, deadline=150, **more):
    env = settings(folder, deadline, **more)
    begin = time.time()
    done = subprocess.run([CHECK, "run", folder], env=env, text=True, capture_output=True)
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert time.time() - begin < deadline + 15
    with open(os.path.join(folder, "check.json")) as f:
        out = json.load(f)
    assert out["schema"] == "shardplan.gpu-check/1"
    return out, {s["name"]: s for s in out["steps"]}


def all_well(folder):
    """Two GPUs: everything runs, rivals' figures stand beside ours, both rehearsals are there, the checker is heard."""
    tool = os.path.join(folder, "nvbandwidth")
    with open(tool, "w") as f:
        f.write("#!/bin/sh\necho 'SUM host_to_device_memcpy_ce 10.5'\necho 'SUM device_to_host_memcpy_ce 9.5'\n")
    os.chmod(tool, 0o755)
    rival = os.path.join(folder, "all_reduce_perf")
    with open(rival, "w") as f:
        f.write("#!/bin/sh\necho '# size count type redop root time algbw busbw'\n"
                "echo '  65536  32768  bfloat16  sum  -1  10.0  6.55  0.001  0  9.9  6.6  0.001  0'\n")
    os.chmod(rival, 0o755)
    checker = os.path.join(folder, "compute-sanitizer")
    with open(checker, "w") as f:
        f.write("#!/bin/sh\nwhile [ \"$1\" != env ]; do shift; done\n\"$@\" || exit 1\n"
                "echo '========= ERROR SUMMARY: 1 error'\nexit 99\n")
    os.chmod(checker, 0o755)
    out, steps = run(os.path.join(folder, "out"), 1, path=folder, devices=2)
    assert steps["sanitizer"]["status"] == "FAIL" and "1 error" in steps["sanitizer"]["reason"], steps
    assert [n for n, s in steps.items() if s["status"] == "FAIL"] == ["sanitizer"], steps
    passed = {n for n, s in steps.items() if s["status"] == "PASS"}
    assert {"device", "correctness", "copies", "kernels", "adam", "nvme", "nccl", "fit", "rehearse-cpu", "rehearse-nvme",
            "nvbandwidth"} <= passed, steps
    assert steps["gemm"]["status"] == "PASS" and out["over_nccl_tests"]["all_reduce"] > 0
    assert {r["optimizer"]: r["ratio"] > 0 for r in out["rehearsals"]} == {"cpu": True, "nvme": True}, out["rehearsals"]
    assert {m["backend"] for m in out["measurements"]} >= {"cuda", "nccl", "nvme", "adam"}
    assert out["gpus"] == 2 and out["over_nvbandwidth"]["h2d"] > 0
    fitted = json.load(open(os.path.join(folder, "out", "fitted.json")))
    assert fitted["gpu"]["pcie_h2d_bytes_per_s"]["provenance"] == "fitted"


def hang(folder):
    """A GPU that stops answering is a failure, and the end comes in time."""
    out, steps = run(folder, 1, deadline=60, faults="hang:0:5")
    assert list(steps) == ["device"] and "did not finish" in steps["device"]["reason"], steps
    assert out["seconds"] < 60


def out_of_time(folder):
    """What there was no time for is said, step by step."""
    _, steps = run(folder, 1, deadline=3)
    assert [s for s in steps.values() if s["status"] == "TIMEOUT" and s["reason"] == "no time was left"], steps


def no_gpu(folder):
    _, steps = run(folder, 4, devices=0)
    assert list(steps) == ["device"] and steps["device"]["status"] == "WAIVED"
    assert "no usable GPU" in steps["device"]["reason"], steps


TOOLS = ["awk", "basename", "bash", "cat", "dirname", "env", "grep", "head", "ln", "mkdir", "mktemp", "mv", "paste", "rm",
         "sed", "sleep", "sort", "tail", "timeout", "tr", "xargs"]


def bare_root(root):
    """A root with a C library, a shell and its tools; nothing else of this machine is reachable."""
    for name in TOOLS:
        path = os.path.realpath(shutil.which(name))
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        libraries = [word for word in listed.split() if word.startswith("/")]
        (libc,) = [path for path in libraries if path.endswith("/libc.so.6")]
        glibc = [os.path.join(os.path.dirname(libc), f"lib{part}.so.{n}")
                 for part, n in (("m", 6), ("dl", 2), ("rt", 1), ("pthread", 0))]
        for library in libraries + glibc:
            os.makedirs(root + os.path.dirname(library), exist_ok=True)
            shutil.copy(library, root + library)
        os.makedirs(root + "/usr/bin", exist_ok=True)
        shutil.copy(path, root + "/usr/bin/" + name)
    os.symlink("usr/bin", root + "/bin")
    os.makedirs(root + "/tmp")
    os.makedirs(root + "/dev/shm")
    os.mknod(root + "/dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))


def packed(folder):
    """The package alone carries a run: in a root that has a C library and a shell (/proc only for sanitizers), with
    stand-ins for what --slim left out, without a driver; then all steps, on virtual GPUs."""
    if os.geteuid() != 0:
        sys.exit(77)
    root = os.path.join(folder, "root")
    os.makedirs(root)
    try:
        bare_root(root)
    except PermissionError:
        sys.exit(77)
    build = os.path.dirname(os.path.dirname(os.path.dirname(BENCH)))
    subprocess.run([CHECK, "pack", build, root + "/pack", "--slim"], check=True, capture_output=True)
    shutil.copy(BENCH, root + "/pack/bin/fake")
    with open(root + "/pack/config.json", "w") as f:
        json.dump(MODEL, f)

    # Sanitizers read their options from /proc: a build with them gets one, of its own namespace.
    linked = subprocess.run(["ldd", BENCH], capture_output=True, text=True, check=True).stdout
    prefix = []
    if "libasan" in linked:
        os.makedirs(root + "/proc")
        prefix = ["unshare", "--mount", "sh", "-c", f'mount -t proc proc {root}/proc && exec "$@"', "sh"]

    def inside(status, **settings):
        chroot = shutil.which("chroot", path="/usr/sbin:/sbin")
        done = subprocess.run([*prefix, chroot, root, "/pack/check.sh", "run", "/out"], text=True, capture_output=True,
                              env=dict(PATH="/usr/bin:/usr/sbin:/bin", ASAN_OPTIONS="detect_leaks=0", **settings))
        assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        with open(root + "/out/check.json") as f:
            out = json.load(f)
        return out, {s["name"]: s for s in out["steps"]}

    out, steps = inside(4, CHECK_FLAGS="--force")
    assert out["program"].startswith("shardbench "), out
    assert steps["libnccl.so.2"]["status"] == "WAIVED", steps
    assert steps["device"]["status"] == "WAIVED" and "no usable GPU" in steps["device"]["reason"], steps
    (name,) = [n for n in os.listdir(root + "/pack/lib/absent") if "cublasLt" in n]
    library = ctypes.CDLL(os.path.join(root, "pack/lib/absent", name))
    library.cublasLtGetStatusString.restype = ctypes.c_char_p
    assert library.cublasLtCreate(None) == 1  # CUBLAS_STATUS_NOT_INITIALIZED
    assert b"is not on this machine" in library.cublasLtGetStatusString(1)

    out, steps = inside(0, CHECK_BENCH="/pack/bin/fake", CHECK_MODEL="/pack/config.json", CHECK_BYTES="64KiB",
                        CHECK_SMALL="64KiB", CHECK_BUDGET="0.01s", CHECK_FLAGS="--force -n 3", CHECK_STORAGE="32MiB",
                        CHECK_GEMM="--shape 64x64x64", FAKEGPU_DEVICES="2")
    done = {n for n, s in steps.items() if s["status"] == "PASS"}
    assert {"device", "copies", "kernels", "nccl", "fit", "rehearse-cpu", "rehearse-nvme"} <= done, steps


def one_fails(folder):
    """A step that fails is named with its output, and stops no other."""
    out, steps = run(folder, 1, faults="error:gpu_adam:2")
    assert steps["kernels"]["status"] == "FAIL" and "adam" in steps["kernels"]["output"], steps
    assert steps["gemm"]["status"] == steps["copies"]["status"] == steps["fit"]["status"] == "PASS", steps
    assert {m["kind"] for m in out["measurements"]} >= {"copy", "memory"}, out["measurements"]
    assert steps["nccl-alone"]["status"] == "PASS", steps
    if steps["nccl-shared-gpu"]["status"] == "PASS":  # where there is MPI
        assert any(m.get("shared_gpu") for m in out["measurements"])


def interrupted(folder):
    """A run that is ended from outside leaves what it knows."""
    env = settings(folder, faults="stuck:gpu_triad:1")
    process = subprocess.Popen([CHECK, "run", folder], env=env, text=True, stdout=subprocess.PIPE)
    path, limit = os.path.join(folder, "check.json"), time.time() + 60
    while not (os.path.exists(path) and "device" in open(path).read()) and time.time() < limit:
        time.sleep(0.2)
    process.terminate()
    process.communicate(timeout=20)
    with open(path) as f:
        steps = [(s["name"], s["status"]) for s in json.load(f)["steps"]]
    assert process.returncode == 130, process.returncode
    assert steps == [("device", "PASS"), ("interrupted", "FAIL")], steps


with tempfile.TemporaryDirectory() as scratch:
    globals()[sys.argv[4]](scratch)
print("ok")
