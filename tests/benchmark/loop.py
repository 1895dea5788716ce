#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loop: measure this machine, fit it, simulate a step, rehearse the step, compare.

    loop.py SHARDPLAN SHARDBENCH [here] [net] [own] [--own-load] [--folder DIR] [--keep DIR]

here: two ranks on this machine, an FSDP2 step and a ZeRO-3 step with its optimizer on storage. net: two network
namespaces, an FSDP2 step at 1 Gb/s and at 200 Mb/s, and the change between them; root only. own: measurements of MPI,
storage and Adam, each size predicted from the others. --own-load puts this
script's session above everybody else's (autogroup), for a machine that builds meanwhile. Exit 1 when a step is
further than 15 % from the simulated one, 77 when nothing could be run.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import net as namespaces  # noqa: E402

LIMIT = 0.15
OWN_LIMIT = 0.10
RANKS = 2
MODELS = {
    # An FSDP2 step of a second or two, and one that 200 Mb/s carry in seconds.
    "here": {"num_hidden_layers": 8, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16,
             "vocab_size": 8192},
    "net": {"num_hidden_layers": 8, "hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8,
            "vocab_size": 8192},
}


def figure(value):
    return {"value": value, "provenance": "assumed", "source": "rehearsed on cores", "low": value, "high": value}


def cluster(nodes, per_node, peak):
    """This machine as a cluster: its "GPU" is a rank's share of its cores, as fast as `peak` says."""
    kernels = {"gemm_fraction": 1.0, "hbm_fraction": 1.0, "launch_s": 1e-6, "issue_s": 1e-6, "unit_host_s": 1e-5,
               "step_host_s": 1e-3, "overlap_loss": 1e-3}
    cores = os.cpu_count() // nodes
    return {
        "schema": "shardplan.cluster/1", "name": "this machine", "nodes": nodes, "gpus_per_node": per_node,
        "intra_fabric": "pcie", "inter_fabric": "ethernet", "cpu_cores": figure(cores),
        "host_memory_bytes": figure(64e9), "host_dram_bytes_per_s": figure(20e9),
        "gpu": {
            "id": "host-cores", "name": "cores of this machine", "vendor": "host",
            "memory_nominal_bytes": figure(64e9), "hbm_bytes_per_s": figure(1e12),
            "peak_flop_per_s": {"fp32": figure(peak), "bf16": figure(peak)},
            "pcie_h2d_bytes_per_s": figure(1e10), "pcie_d2h_bytes_per_s": figure(1e10),
            "pcie_h2d_both_bytes_per_s": figure(1e12), "pcie_d2h_both_bytes_per_s": figure(1e12),
            "kernels": {"eager": {k: figure(v) for k, v in kernels.items()}},
        },
    }


class Loop:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.rows, self.failed = [], 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, document):
        with open(self.path(name), "w", encoding="utf-8") as f:
            json.dump(document, f)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            return json.load(f)

    def run(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=900)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(words)}: {done.stdout[-500:]} {done.stderr[-2000:]}")
        return done.stdout

    def bench(self, *words):
        self.run(self.options.shardbench, *words, "--force", "-q")

    def model(self, name):
        return self.write(name + "-model.json", {"model_type": "llama", "max_position_embeddings": 4096,
                                                 "torch_dtype": "bfloat16", "tie_word_embeddings": False,
                                                 "num_key_value_heads": MODELS[name]["num_attention_heads"],
                                                 **MODELS[name]})

    def fit(self, base, out, *measurements):
        self.run(self.options.shardplan, "fit", *[self.path(m) for m in measurements], "--cluster", self.path(base),
                 "-o", self.path(out), "--json", self.path("fit-" + out))
        fitted = self.read("fit-" + out)
        errors = {f["law"]: f["scatter"] for f in fitted["fits"]}
        print("fitted: " + ", ".join(f"{k} (scatter {100 * v:.1f} %)" for k, v in errors.items()))

    def simulate(self, model, fitted, graph, *recipe):
        out = self.run(self.options.shardplan, "simulate", model, self.path(fitted), *recipe, "--graph",
                       self.path(graph), "--json", "-")
        return json.loads(out)

    def note(self, name, simulated, measured):
        ratio = measured / simulated
        self.failed += abs(ratio - 1) > LIMIT
        self.rows.append((name, simulated, measured, ratio))
        print(f"{name}: simulated {simulated:.3f} s, measured {measured:.3f} s, ratio {ratio:.3f}", flush=True)

    def show(self, rehearsal):
        for s in rehearsal["streams"]:
            if s["simulated_busy_s"] > 0:
                print(f"    {s['name']:12} busy {s['simulated_busy_s']:.3f} | {s['measured_busy_s']:.3f} s, alone "
                      f"{s['simulated_exposed_s']:.3f} | {s['measured_exposed_s']:.3f} s")
        for t in rehearsal["deviating"][:4]:
            print(f"    {t['phase']} {t['kind']} {t['unit'] or ''}: {t['simulated_s']:.4f} | {t['measured_s']:.4f} s")

    # ---- two ranks here ------------------------------------------------------------------------------------------

    def measure_here(self):
        ring = ["--ranks", str(RANKS), "--algorithm", "ring", "--wait", "nap", "-b", "64KiB", "-e", "64MiB",
                "--budget", "500ms"]
        self.bench("collectives", *ring, "--op", "all_gather,reduce_scatter,all_reduce", "--dtype", "fp32", "--json",
                   self.path("fp32.json"))
        self.bench("collectives", *ring, "--op", "all_gather,reduce_scatter,all_reduce", "--dtype", "bf16", "--json",
                   self.path("bf16.json"))
        self.bench("copy", "--threads", str(RANKS), "--json", self.path("copy.json"))
        self.bench("adam", "--dtype", "fp32", "--json", self.path("adam.json"))
        self.bench("nvme", "--folder", self.options.folder, "--pattern", "read,write", "--json",
                   self.path("nvme.json"))

    def here(self):
        self.measure_here()
        self.write("base.json", cluster(1, RANKS, 4e12))
        model = self.model("here")
        local = ["copy.json", "adam.json", "nvme.json"]
        for name, types, recipe in (
                ("FSDP2, 2 ranks", "fp32.json", ["--strategy", "fsdp2"]),
                ("ZeRO-3, optimizer on NVMe", "bf16.json",
                 ["--strategy", "zero3", "--offload-optimizer", "nvme", "--set", "adam_software=own"])):
            self.fit("base.json", "fitted.json", types, *local)
            simulated = self.simulate(model, "fitted.json", "graph.json", "--seq", "2048", *recipe)
            self.bench("rehearse", self.path("graph.json"), "--ranks", str(RANKS), "--folder", self.options.folder,
                       "--json", self.path("rehearsal.json"))
            rehearsal = self.read("rehearsal.json")
            self.note(name, simulated["time"]["step_s"], rehearsal["step"]["measured_s"])
            self.show(rehearsal)

    # ---- own measurements, each predicted from the others ---------------------------------------------------------

    def own(self):
        """Laws against this machine's MPI, storage and Adam: a size that a fit did not see, at most 10 % off."""
        self.bench("collectives", "--ranks", str(RANKS), "--algorithm", "ring", "-b", "16KiB", "-e", "64MiB",
                   "--factor", "2", "--budget", "300ms", "--json", self.path("own-mpi.json"))
        self.bench("nvme", "--folder", self.options.folder, "--pattern", "read,write", "--block",
                   "256KiB,512KiB,1MiB,2MiB,4MiB,8MiB", "--json", self.path("own-nvme.json"))
        adam = []
        for millions in (4, 6, 8, 12, 16, 24, 32):
            adam.append(f"own-adam-{millions}.json")
            self.bench("adam", "--dtype", "fp32", "--parameters", f"{millions}000000", "--json", self.path(adam[-1]))
        self.write("base.json", cluster(1, RANKS, 4e12))
        self.run(self.options.shardplan, "fit", self.path("own-mpi.json"), self.path("own-nvme.json"),
                 *map(self.path, adam), "--cluster", self.path("base.json"), "-o", self.path("own.json"), "--json",
                 self.path("fit-own.json"))
        fitted = self.read("fit-own.json")
        errors = {f["law"]: f["left_out"] for f in fitted["fits"]}
        errors.update({r["path"]: r["left_out"] for r in fitted["rates"] if r["sizes"]})
        for name, error in errors.items():
            print(f"{name}: sizes predicted from the others {100 * error:.1f} % off")
            self.failed += error > OWN_LIMIT

    # ---- two namespaces ------------------------------------------------------------------------------------------

    def at_rate(self, mbit, model):
        machine = namespaces.Net(RANKS, mbit, own_cores=True)
        name = f"{mbit}mbit"
        sizes = ["-b", "64KiB", "-e", "16MiB", "--budget", "2s", "-n", "3"]
        try:
            out, _ = machine.run(["collectives", "--op", "all_gather,reduce_scatter,all_reduce", "--dtype", "fp32",
                                  "--algorithm", "ring", "--wait", "nap", *sizes, "--json", "-"], self.folder)
            self.write(name + ".json", json.loads(out))
            self.fit("base-net.json", name + "-fitted.json", name + ".json")
            simulated = self.simulate(model, name + "-fitted.json", name + "-graph.json", "--seq", "2048",
                                      "--strategy", "fsdp2")
            out, _ = machine.run(["rehearse", self.path(name + "-graph.json"), "--json", "-"], self.folder)
        finally:
            machine.close()
        rehearsal = json.loads(out)
        times = simulated["time"]["step_s"], rehearsal["step"]["measured_s"]
        self.note(f"FSDP2, 2 namespaces at {mbit} Mb/s", *times)
        self.show(rehearsal)
        return times

    def net(self):
        namespaces.BENCH = self.options.shardbench
        self.write("base-net.json", cluster(RANKS, 1, 1e12))
        model = self.model("net")
        fast, slow = self.at_rate(1000, model), self.at_rate(200, model)
        self.note("change from 1 Gb/s to 200 Mb/s", slow[0] - fast[0], slow[1] - fast[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shardplan")
    parser.add_argument("shardbench")
    parser.add_argument("parts", nargs="*", choices=["here", "net", "own", []])
    parser.add_argument("--own-load", action="store_true")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--keep")
    options = parser.parse_args()
    options.shardplan, options.shardbench = map(os.path.abspath, (options.shardplan, options.shardbench))
    parts = options.parts or ["here", "net", "own"]
    if options.own_load:
        if os.fork():
            _, status = os.wait()
            sys.exit(os.waitstatus_to_exitcode(status))
        os.setsid()
        os.environ["SHARDPLAN_OWN_LOAD"] = "1"  # the launcher of a namespace opens a session of its own
        with open("/proc/self/autogroup", "w", encoding="ascii") as f:
            f.write("-20")
    if os.cpu_count() < RANKS or ("net" in parts and not namespaces.usable()):
        print("skipped: needs two processors, and root with iproute2 for namespaces")
        sys.exit(namespaces.SKIP)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
          f"{', own session above it' if options.own_load else ''}")
    with tempfile.TemporaryDirectory() as scratch:
        loop = Loop(options, options.keep or scratch)
        for part in parts:
            getattr(loop, part)()
    print(f"\n| step | simulated | measured | ratio |\n|---|---|---|---|")
    for name, simulated, measured, ratio in loop.rows:
        print(f"| {name} | {simulated:.3f} s | {measured:.3f} s | {ratio:.3f} |")
    sys.exit(1 if loop.failed else 0)


if __name__ == "__main__":
    main()
