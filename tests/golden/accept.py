#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fit and accept on measurements made here: healthy passes, faults fail with the culprit, no data never passes."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
MIB = 1 << 20


def result(kind, seconds, **more):
    r = {"kind": kind, "backend": "mpi", "median_s": seconds, "min_s": seconds, "max_s": seconds, "iterations": 20, "errors": 0}
    r.update(more)
    payload, n = r.get("payload_bytes"), r.get("ranks", 2)
    if payload:
        factor = 2 * (n - 1) / n if kind == "all_reduce" else (n - 1) / n if kind in ("all_gather", "reduce_scatter") else 1
        r.setdefault("algbw_bytes_per_s", payload / seconds)
        r.setdefault("busbw_bytes_per_s", payload / seconds * factor)
    return r


def sweep(rate=3.2e11, noise=0.01, seed=1, kinds=("all_gather", "reduce_scatter"), nodes=1, ranks=8):
    rng = random.Random(seed)
    for kind in kinds:
        for e in range(20, 34):
            payload = 1 << e
            seconds = 60e-6 + payload * 7 / 8 / rate
            yield result(kind, seconds * (1 + rng.gauss(0, noise)), payload_bytes=payload, ranks=ranks, nodes=nodes,
                         scope="intra_node" if nodes == 1 else "inter_node", dtype="bf16")


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, results):
        with open(self.path(name), "w", encoding="utf-8") as f:
            json.dump({"schema": "shardplan.measurement/1", "host": {"name": "node", "memory_bytes": 2 * 10**12},
                       "build": {"type": "release"}, "results": list(results)}, f)
        return self.path(name)

    def run_program(self, *words):
        return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60)

    def accept(self, results, *words, cluster="dgx-h100"):
        m = self.write("m.json", results)
        done = self.run_program("accept", m, "--cluster", cluster, "--json", "-", *words)
        return (json.loads(done.stdout) if done.stdout else None), done


class Accept(Case):
    def test_healthy_passes(self):
        verdict, done = self.accept(sweep())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(verdict["verdict"], "PASS")

    def test_half_rate_fails_by_topology_and_by_baseline(self):
        verdict, done = self.accept(sweep(rate=1.6e11))
        self.assertEqual((done.returncode, verdict["verdict"]), (1, "FAIL"))
        base = self.write("base.json", sweep(rate=3.2e11, seed=5))
        verdict, done = self.accept(sweep(rate=2.9e11), "--baseline", base)
        self.assertEqual(done.returncode, 1)

    def test_capped_pair_is_named(self):
        pairs = [result("send_recv", 64 * MIB / (2.4e10 if (i, k) != (1, 3) else 6e9), payload_bytes=64 * MIB,
                        ranks=2, nodes=2, group=f"{i},{k}", scope="inter_node")
                 for i in range(4) for k in range(i + 1, 4)]
        verdict, done = self.accept(list(sweep()) + pairs)
        self.assertEqual(done.returncode, 1)
        failed = [c for c in verdict["checks"] if c["status"] == "FAIL"]
        self.assertEqual([c["culprit"] for c in failed], ["pair 1,3"])

    def test_throttled_disk(self):
        disk = [result("nvme", 0.001, direction="read", algbw_bytes_per_s=6e9),
                result("nvme", 0.001, direction="write", algbw_bytes_per_s=3e9)]
        base = self.write("base.json", list(sweep(seed=9)) + disk)
        slow = [result("nvme", 0.002, direction="read", algbw_bytes_per_s=2e9), disk[1]]
        verdict, done = self.accept(list(sweep()) + slow, "--baseline", base)
        failed = [c["name"] for c in verdict["checks"] if c["status"] == "FAIL"]
        self.assertEqual((done.returncode, failed), (1, ["NVMe read"]))

    def test_wrong_data_fails(self):
        bad = result("all_gather", 1e-3, payload_bytes=64 * MIB, ranks=8, nodes=1)
        bad["errors"] = 7
        verdict, done = self.accept(list(sweep()) + [bad])
        self.assertEqual(done.returncode, 1)

    def test_no_data_never_passes(self):
        verdict, done = self.accept([])
        self.assertEqual((done.returncode, verdict["verdict"]), (4, "NODATA"))
        verdict, done = self.accept([], "--allow-waived")
        self.assertEqual(done.returncode, 4)
        verdict, done = self.accept(sweep(), "--plan", self.plan("llama-3-70b", "--with-offload"))
        self.assertIn(verdict["verdict"], ("PASS", "NODATA"))

    def plan(self, model, *words):
        out = self.path("plan.json")
        self.run_program("plan", model, "dgx-h100", "--json", out, *words)
        return out

    def test_two_node_all_reduce_is_no_network_measurement(self):
        verdict, done = self.accept(sweep(kinds=("all_reduce",), nodes=2, ranks=16, rate=4e11))
        self.assertEqual(done.returncode, 4)
        self.assertTrue(all("no measure of a network" in (c["reason"] or "no measure of a network") for c in verdict["checks"]))

    def test_oversubscribed_is_waived(self):
        results = list(sweep())
        for r in results:
            r["oversubscribed"] = True
        verdict, done = self.accept(results)
        self.assertEqual((done.returncode, verdict["verdict"]), (4, "WAIVED"))

    def test_crowded_pairs_are_waived(self):
        """Ranks that take turns on a processor: whose turn it was is no fault of a link."""
        for nodes, expected in ((1, (4, "WAIVED")), (4, (1, "FAIL"))):
            pairs = [result("send_recv", 64 * MIB / (2.4e10 if (i, k) != (1, 3) else 6e9), payload_bytes=64 * MIB,
                            group=f"{i},{k}", ranks=2, nodes=nodes, oversubscribed=True, algbw_bytes_per_s=2.4e10
                            if (i, k) != (1, 3) else 6e9)
                     for i in range(4) for k in range(i + 1, 4)]
            verdict, done = self.accept(pairs)
            self.assertEqual((done.returncode, verdict["verdict"]), expected, verdict["checks"])

    def test_junit(self):
        out = self.path("j.xml")
        self.accept(sweep(rate=1.6e11), "--junit", out)
        suite = xml.dom.minidom.parse(out).documentElement
        self.assertGreater(int(suite.getAttribute("failures")), 0)
        self.assertEqual(len(suite.getElementsByTagName("testcase")), int(suite.getAttribute("tests")))

    def test_a_point_just_below_is_measured_again(self):
        base = self.write("base.json", [r for seed in range(5) for r in sweep(noise=0.002, seed=1000 + seed)])
        again = self.write("again.json", sweep(noise=0.002, seed=7))
        low = list(sweep(noise=0.002, seed=8))
        low[-1]["busbw_bytes_per_s"] *= 0.92
        words = ("--baseline", base)
        self.assertEqual(self.accept(low, *words)[1].returncode, 1)
        copy = f"sh -c 'for last; do :; done; cp {again} \"$last\"' x"
        verdict, done = self.accept(low, *words, "--remeasure", copy)
        self.assertEqual((done.returncode, verdict["verdict"]), (0, "PASS"), done.stdout + done.stderr)
        low[-1]["busbw_bytes_per_s"] *= 0.5  # far below: nothing to settle
        verdict, done = self.accept(low, *words, "--remeasure", "exit 9; ")
        self.assertEqual(done.returncode, 1)

    def test_topology_alone(self):
        done = self.run_program("accept", "--cluster", "dgx-h100", "--topology", self.topology(18))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = self.run_program("accept", "--cluster", "dgx-h100", "--topology", self.topology(17))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("17 of 18 links", done.stdout)

    def topology(self, links):
        path = self.path("topo.txt")
        with open(path, "w", encoding="utf-8") as f:
            names = [f"GPU{i}" for i in range(8)]
            f.write("\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\n")
            for i in range(8):
                cells = ["X" if i == k else f"NV{links if 0 in (i, k) else 18}" for k in range(8)]
                f.write(names[i] + "\t" + "\t".join(cells) + f"\t0-55\t{i // 4}\n")
        return path


def between_gpus(results):
    return [dict(r, backend="nccl") for r in results]


class Fit(Case):
    def test_fit_is_used(self):
        m = self.write("m.json", between_gpus(sweep(rate=1.0e11, noise=0.005)))
        out = self.path("fitted.json")
        done = self.run_program("fit", m, "--cluster", "dgx-h100", "-o", out, "--json", self.path("fit.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("fit.json"), encoding="utf-8") as f:
            fits = {x["law"]: x for x in json.load(f)["fits"]}
        law = fits["all_gather, 8 ranks on 1 node"]
        self.assertAlmostEqual(law["bandwidth_bytes_per_s"] / 1e11, 1, 1)
        steps = []
        for cluster in ("dgx-h100", out):
            done = self.run_program("plan", "llama-2-7b", cluster, "--strategy", "fsdp2", "--json", "-")
            steps.append(json.loads(done.stdout)["plans"][0]["time"])
        self.assertGreater(steps[1]["step_s"], steps[0]["step_s"])  # the slow fabric that was measured

    def test_ranks_on_processors_are_no_gpus(self):
        """A node's MPI ranks on processors say nothing of its NVLink."""
        m = self.write("m.json", list(sweep(rate=5e9, noise=0.005)) +
                       [result("nvme", 0.001, direction="read", algbw_bytes_per_s=6.5e9)])
        done = self.run_program("fit", m, "--cluster", "dgx-h100", "-o", self.path("fitted.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("are left out: they were timed between processors", done.stderr)
        with open(self.path("fitted.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f)["fits"], [])

    def test_rates(self):
        m = self.write("m.json", [result("nvme", 0.001, direction="read", algbw_bytes_per_s=6.5e9),
                                  result("adam", 0.35, n=1000000000, backend="adam"),
                                  result("copy", 0.1, direction="h2d", algbw_bytes_per_s=5.4e10)])
        out = self.path("fitted.json")
        done = self.run_program("fit", m, "--cluster", "dgx-h100", "-o", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(out, encoding="utf-8") as f:
            c = json.load(f)
        self.assertEqual(c["nvme_read_bytes_per_s"]["value"], 6.5e9)
        self.assertEqual(c["nvme_read_bytes_per_s"]["provenance"], "fitted")
        self.assertAlmostEqual(c["cpu_adam_by_software"]["own"]["value"], 0.35e-9)

    def test_the_faster_algorithm_counts(self):
        """Two algorithms for one group are two laws, not one cloud of points; a rank's CPU time becomes cores."""
        results = []
        for name, rate in (("library", 1e11), ("ring", 2e11)):
            for r in sweep(rate=rate, noise=0.005, kinds=("all_gather",)):
                results.append(dict(r, algorithm=name, cpu_s=0.25 * r["median_s"]))
        out = self.path("fitted.json")
        done = self.run_program("fit", self.write("m.json", between_gpus(results)), "--cluster", "dgx-h100", "-o", out, "--json",
                                self.path("fit.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("fit.json"), encoding="utf-8") as f:
            document = json.load(f)
        self.assertEqual({x["law"].split(", ")[-1] for x in document["fits"]}, {"ring"})
        self.assertEqual([x["reason"] for x in document["refused"]], ["slower than ring"])
        self.assertLess(document["fits"][0]["left_out"], 0.02)
        with open(out, encoding="utf-8") as f:
            fit = json.load(f)["fits"][-1]
        self.assertLess(abs(fit["busbw_bytes_per_s"]["value"] / 2e11 - 1), 0.02)
        self.assertAlmostEqual(fit["cores"], 0.25, 6)

    def test_sizes_left_out(self):
        """Adam at several counts of parameters: one law, and each count predicted from the others."""
        results = [result("adam", 2e-5 + n * 1.5e-9, n=n, backend="adam", algorithm="avx2", threads=2)
                   for n in (1000000, 2000000, 4000000, 8000000, 16000000)]
        done = self.run_program("fit", self.write("m.json", results), "--cluster", "dgx-h100", "-o",
                                self.path("f.json"), "--json", self.path("fit.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("fit.json"), encoding="utf-8") as f:
            rate = json.load(f)["rates"][0]
        self.assertEqual((rate["path"], rate["sizes"]), ("cluster.cpu_adam_by_software.own", 5))
        self.assertLess(rate["left_out"], 0.01)

    def test_intervals_shrink(self):
        """What was measured is known better than what was assumed, in plan and in simulate."""
        m = self.write("m.json", between_gpus(sweep(noise=0.005, kinds=("all_gather", "reduce_scatter", "all_reduce"))))
        out = self.path("fitted.json")
        done = self.run_program("fit", m, "--cluster", "8xA6000", "-o", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        for command, times in (("plan", lambda d: d["plans"][0]["time"]), ("simulate", lambda d: d["time"])):
            widths = []
            for cluster in ("8xA6000", out):
                done = self.run_program(command, "llama-2-7b", cluster, "--strategy", "fsdp2", "--json", "-")
                t = times(json.loads(done.stdout))
                widths.append((t["step_high_s"] - t["step_low_s"]) / t["step_s"])
            self.assertLess(widths[1], 0.8 * widths[0], command)

    def test_nothing_to_fit(self):
        done = self.run_program("fit", self.write("m.json", []), "--cluster", "dgx-h100", "-o", self.path("x.json"))
        self.assertEqual(done.returncode, 4)
        self.assertFalse(os.path.exists(self.path("x.json")))



class Bridges(Case):
    """NVIDIA/nccl-tests issue 178: NVLink joins pairs of cards; every other pair has PCIe alone."""
    MATRIX = os.path.join(os.environ["SHARDPLAN_SOURCE_ROOT"], "tests", "fixtures", "import",
                          "topo_06_8xA100PCIe_NVLinkBridge_pairs.txt")

    def pairs(self, **slow):
        for a in range(8):
            for b in range(a + 1, 8):
                rate = 250e9 if a // 2 == b // 2 else 20e9 if a // 4 == b // 4 else 16e9
                rate = slow.get(f"p{a}{b}", rate)
                yield result("copy", 2**28 / rate, backend="cuda", direction="p2p", group=f"{a},{b}", payload_bytes=2**28)

    def failures(self, results, text=None):
        with open(self.MATRIX, encoding="utf-8") as f:
            matrix = f.read()
        path = self.path("topo.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text(matrix) if text else matrix)
        verdict, done = self.accept(results, "--topology", path, cluster="8xA100-PCIe")
        self.assertIsNotNone(verdict, done.stderr)
        return verdict, [c["culprit"] for c in verdict["checks"] if c["status"] == "FAIL"]

    def test_matrix_alone(self):
        verdict, failed = self.failures([])
        self.assertEqual((verdict["verdict"], failed), ("PASS", []))
        unjudged = [c for c in verdict["checks"] if c["status"] == "NODATA"]
        self.assertEqual([c["name"] for c in unjudged], ["8 pairs over PCIe (NODE)", "16 pairs over PCIe (SYS)"])
        self.assertTrue(all("no rate" in c["reason"] and c["next_step"] for c in unjudged))

    def test_a_bridge_that_lost_links(self):
        _, failed = self.failures([], lambda m: m.replace("NV12", "NV8"))
        self.assertEqual(failed, [f"GPU{i},GPU{i + 1}" for i in (0, 2, 4, 6)])

    def test_a_bridge_that_is_gone(self):
        def without(matrix):
            return "\n".join(line.replace("NV12", "NODE") if line.startswith(("GPU6", "GPU7")) else line
                             for line in matrix.split("\n"))
        _, failed = self.failures([], without)
        self.assertEqual(failed, ["GPU6", "GPU7"])

    def test_measured_pairs_by_their_link(self):
        verdict, failed = self.failures(self.pairs())
        self.assertEqual((verdict["verdict"], failed), ("PASS", []))
        self.assertFalse([c for c in verdict["checks"] if c["status"] == "NODATA"])
        _, failed = self.failures(self.pairs(p23=20e9))  # as fast as a slot: the bridge carries nothing
        self.assertEqual(failed, ["pair 2,3"])
        _, failed = self.failures(self.pairs(p02=10e9))
        self.assertEqual(failed, ["pair 0,2"])
        _, failed = self.failures(self.pairs(p01=150e9, p23=150e9, p45=150e9, p67=150e9))  # all alike, none as sold
        self.assertEqual(failed, ["pair 0,1", "pair 2,3", "pair 4,5", "pair 6,7"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
