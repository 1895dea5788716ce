#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every sample of another tool's output is parsed, or refused naming the line and why."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["SHARDPLAN_PROGRAM"]
FOLDER = os.path.join(os.environ["SHARDPLAN_SOURCE_ROOT"], "tests", "fixtures", "import")


def load(path, *words):
    done = subprocess.run([PROGRAM, "catalog", "import", path, *words, "--json", "-"],
                          capture_output=True, text=True, timeout=60)
    return (json.loads(done.stdout) if done.returncode == 0 else None), done


def sample(name, *words):
    """Under a neutral name: the answer must come from the content."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log")
        with open(os.path.join(FOLDER, name), "rb") as f, open(path, "wb") as g:
            g.write(f.read())
        return load(path, *words)


class NcclTests(unittest.TestCase):
    # file: collective, ranks, results, words that must stand in the warnings
    TABLES = {
        "nccl_01_all_reduce_16xH100_2node.txt": ("all_reduce", 16, None, []),
        "nccl_02_all_gather_16xH100_2node_TCPX.txt": ("all_gather", 16, None, ["--op"]),
        "nccl_03_all_gather_2rank_socket_slow.txt": ("all_gather", 2, 16, []),
        "nccl_04_reduce_scatter_2rank_socket_slow.txt": ("reduce_scatter", 2, None, []),
        "nccl_06_alltoall_4rank_RoCE_interleaved_info.txt": ("all_to_all", 4, 12, []),
        "nccl_09_all_reduce_16xH100_GOOD.txt": ("all_reduce", 16, None, []),
        "nccl_10_all_reduce_2rank_TCP_mpiprefix.txt": ("all_reduce", 2, 10, []),
        "nccl_11_reduce_scatter_8rank_ZERO_ROWS_truncated.txt": ("reduce_scatter", 8, 4, [":8:", "cut off", "size 0"]),
        "nccl_13_all_gather_16xB200_small_msgs_head.txt": ("all_gather", 16, None, ["1 rank lines", "16 ranks"]),
        "nccl_14_broadcast_2rank_OLDFORMAT_no_redop.txt": ("broadcast", 2, 8, ["--op"]),
    }

    def test_tables(self):
        for name, (kind, ranks, count, words) in self.TABLES.items():
            result, done = sample(name)
            self.assertIsNotNone(result, (name, done.stderr))
            self.assertEqual({r["kind"] for r in result["results"]}, {kind}, name)
            self.assertEqual({r["ranks"] for r in result["results"]}, {ranks}, name)
            if count is not None:
                self.assertEqual(len(result["results"]), count, name)
            for word in words:
                self.assertIn(word, done.stderr, name)

    def test_values(self):
        result, _ = sample("nccl_03_all_gather_2rank_socket_slow.txt")
        first = result["results"][0]
        self.assertEqual(first["payload_bytes"], 1048576)
        self.assertEqual(first["dtype"], "fp32")
        self.assertAlmostEqual(first["median_s"], 2197.40e-6, 9)
        self.assertAlmostEqual(first["busbw_bytes_per_s"] / 0.24e9, 1, 1)
        self.assertFalse(first["in_place"])
        self.assertTrue(result["results"][1]["in_place"])

    def test_a_raw_log_is_refused_with_the_command_that_reads_it(self):
        with tempfile.TemporaryDirectory() as folder:
            log, read = os.path.join(FOLDER, "nccl_09_all_reduce_16xH100_GOOD.txt"), os.path.join(folder, "m.jsonl")
            words = ["fit", log, "--cluster", "dgx-h100", "-o", os.path.join(folder, "c.json")]
            done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 3)
            self.assertIn("catalog import", done.stderr)
            for kind in ([], ["clusters"]):
                done = subprocess.run([PROGRAM, "catalog", "import", *kind, log, "-o", read],
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)
            words[1] = read
            done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_busbw_equals_the_printed_one(self):
        result, _ = sample("nccl_09_all_reduce_16xH100_GOOD.txt")
        self.assertTrue(any(abs(r["busbw_bytes_per_s"] / 390e9 - 1) < 0.01 for r in result["results"]))

    def test_op_overrides_and_disagreement_is_said(self):
        result, done = sample("nccl_02_all_gather_16xH100_2node_TCPX.txt", "--op", "all_to_all")
        self.assertEqual({r["kind"] for r in result["results"]}, {"all_to_all"})
        result, done = sample("nccl_09_all_reduce_16xH100_GOOD.txt", "--op", "reduce_scatter")
        self.assertIn("columns are those of all_reduce", done.stderr)
        self.assertEqual(sample("nccl_09_all_reduce_16xH100_GOOD.txt", "--op", "shuffle")[1].returncode, 2)

    def test_json(self):
        result, done = load(os.path.join(FOLDER, "nccl_tests.json"))
        self.assertEqual(len(result["results"]), 2)
        self.assertEqual(result["results"][0]["kind"], "all_reduce")
        self.assertEqual(result["results"][0]["ranks"], 8)
        self.assertEqual(result["results"][1]["errors"], 3)


class Topologies(unittest.TestCase):
    WHOLE = {
        "topo_01_2gpu_NV2.txt": (2, 0, "NV2"), "topo_02_2gpu_PHB.txt": (2, 0, "PHB"),
        "topo_03_8xA100_NV12.txt": (8, 0, "NV12"), "topo_04_8xH100_NV18.txt": (8, 0, "NV18"),
        "topo_05_4xRTX6000Ada_4nic_NODE_SYS.txt": (4, 4, "NODE"),
        "topo_06_8xA100PCIe_NVLinkBridge_pairs.txt": (8, 0, "NV12"),
        "topo_07_6gpu_ANSI_tabs_PIX.txt": (6, 0, "PIX"), "topo_11_1gpu_1nic_VM.txt": (1, 1, "PHB"),
    }

    def test_whole(self):
        for name, (gpus, nics, first) in self.WHOLE.items():
            result, done = sample(name)
            self.assertIsNotNone(result, (name, done.stderr))
            kinds = [d["kind"] for d in result["devices"]]
            self.assertEqual((kinds.count("gpu"), kinds.count("nic")), (gpus, nics), name)
            self.assertEqual(result["paths"][0][1], first, name)
            self.assertTrue(result["complete"], name)
            self.assertEqual(done.stderr, "", name)

    def test_numa(self):
        result, _ = sample("topo_07_6gpu_ANSI_tabs_PIX.txt")
        self.assertEqual([d["numa"] for d in result["devices"]], [0, 0, 0, 0, 1, 1])

    def test_cut(self):
        for name, words in {"topo_09_8xH100_6nic_TRUNCATED.txt": [":11:", "GPU7", "NIC5"],
                            "topo_10_8xA100_12nic_TRUNCATED.txt": ["GPU4", "NIC11"]}.items():
            result, done = sample(name)
            self.assertFalse(result["complete"], name)
            for word in words:
                self.assertIn(word, done.stderr, name)

    def test_merged_cells_are_not_guessed(self):
        text = "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      NODENODE 0-23 0\nGPU1    NODE    X   0-23  0\n"
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
            f.write(text)
            f.flush()
            result, done = load(f.name)
        self.assertFalse(result["complete"])
        self.assertIn("NODENODE", done.stderr)
        self.assertEqual(result["paths"][0][1], "NODE")  # known from the other row

    def test_p2p(self):
        result, _ = sample("topo_p2p_rw_2x5090_GNS.txt")
        self.assertEqual(result["p2p"], [["X", "GNS"], ["GNS", "X"]])

    def test_nccl_xml(self):
        result, done = sample("nccl_xml_8xH100.xml")
        self.assertEqual([d["name"] for d in result["devices"]], ["GPU0", "GPU1", "mlx5_0"])
        self.assertEqual(result["paths"][0], ["X", "NV18", "PIX"])
        self.assertEqual(result["paths"][1][2], "SYS")
        self.assertEqual(result["devices"][1]["pcie_generation"], 4)
        self.assertEqual(result["devices"][1]["pcie_lanes"], 8)
        self.assertEqual(result["devices"][2]["nic_bytes_per_s"], 5e10)

    def test_broken_xml(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as f:
            f.write("<system version=\"1\">\n<cpu numaid=\"0\">\n<gpu></cpu>")
            f.flush()
            _, done = load(f.name)
        self.assertEqual(done.returncode, 3)
        self.assertIn(":3:", done.stderr)


class Others(unittest.TestCase):
    def test_p2p_bandwidth(self):
        result, _ = sample("p2pBandwidthLatencyTest_4xRTX6000Ada.txt")
        first = result["results"][0]
        self.assertEqual((first["kind"], first["group"], first["direction"]), ("copy", "0,1", "p2p"))
        self.assertAlmostEqual(first["busbw_bytes_per_s"], 22.23e9)
        both = [r for r in result["results"] if r["direction"] == "bidirectional"]
        self.assertAlmostEqual(both[0]["busbw_bytes_per_s"], 52.10e9)

    def test_gdsio(self):
        result, _ = sample("gdsio_nvme_lines.txt")
        rates = [r["algbw_bytes_per_s"] / 2**30 for r in result["results"]]
        self.assertAlmostEqual(rates[0], 22.016713, 5)
        self.assertEqual([r["backend"] for r in result["results"]], ["cufile", "pread"])

    def test_nvbandwidth(self):
        result, done = sample("nvbandwidth.json")
        self.assertEqual([r["direction"] for r in result["results"]], ["h2d", "h2d", "p2p", "p2p"])
        self.assertAlmostEqual(result["results"][0]["algbw_bytes_per_s"], 55.31e9)
        self.assertIn("Waived", done.stderr)

    def test_fio(self):
        result, done = sample("fio.json")
        self.assertEqual(len(result["results"]), 1)
        r = result["results"][0]
        self.assertEqual((r["direction"], r["block_bytes"], r["queue_depth"], r["jobs"]), ("read", 2**20, 32, 2))
        self.assertEqual(r["algbw_bytes_per_s"], 6710886400)
        self.assertIn("error", done.stderr)

    def test_profiler_trace(self):
        result, done = sample("kineto_2steps.json")
        self.assertEqual(result["schema"], "shardplan.profile/1")
        self.assertEqual([s["number"] for s in result["steps"]], [10, 11])
        self.assertAlmostEqual(result["exposed_comm_s"], 150e-6)
        self.assertEqual({c["class"]: c["kernels"] for c in result["classes"]}["all_gather"], 1)
        self.assertIn("2 of 16 kernels", done.stderr)

    def test_memory_snapshot(self):
        result, _ = sample("memory_snapshot.json")
        self.assertEqual(result["schema"], "shardplan.snapshot/1")
        self.assertEqual(result["allocated_peak_bytes"], 49 * 2**20)
        self.assertEqual(sum(c["at_peak_bytes"] for c in result["classes"]), 49 * 2**20)

    def test_pickled_snapshot_is_refused_with_a_command_that_works(self):
        import pickle
        with open(os.path.join(FOLDER, "memory_snapshot.json"), encoding="utf-8") as f:
            content = json.load(f)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "snap.pickle")
            with open(path, "wb") as f:
                pickle.dump(content, f)
            result, done = load(path)
            self.assertEqual((result, done.returncode), (None, 3))
            command = done.stderr[done.stderr.index("python3 -c"):].strip()
            subprocess.run(command, shell=True, check=True, timeout=60)
            self.assertEqual(load(path + ".json")[0]["allocated_peak_bytes"], 49 * 2**20)

    def test_packed_and_cut_profiles(self):
        import gzip
        with open(os.path.join(FOLDER, "kineto_2steps.json"), "rb") as f:
            text = f.read()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t")
            for content, words in ((gzip.compress(text), "gunzip -k"), (text[:-200], "cut off")):
                with open(path, "wb") as f:
                    f.write(content)
                result, done = load(path)
                self.assertEqual((result, done.returncode), (None, 3))
                self.assertIn(words, done.stderr)

    def test_simulate_compares(self):
        done = subprocess.run([PROGRAM, "simulate", "llama-3.2-1b", "dgx-h100", "--strategy", "fsdp2", "--json", "-",
                               "--compare-trace", os.path.join(FOLDER, "kineto_2steps.json"),
                               "--compare-memory", os.path.join(FOLDER, "memory_snapshot.json")],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        rows = {r["name"]: r for r in result["profile"]["comparison"]}
        self.assertAlmostEqual(rows["step"]["measured"], 1e-3)
        self.assertAlmostEqual(rows["step"]["predicted"], result["time"]["step_s"], 12)
        self.assertAlmostEqual(rows["GPU kernels"]["predicted"], result["time"]["compute_s"], 12)
        kernels = sum(rows[n]["predicted"] for n in ("matmuls", "attention", "norms, loss, elementwise"))
        self.assertLess(abs(kernels / result["time"]["compute_s"] - 1), 0.2)
        self.assertAlmostEqual(rows["all_gather payload"]["measured"], 2048)
        self.assertAlmostEqual(rows["step"]["ratio"], 1e-3 / result["time"]["step_s"], 6)
        rows = {r["name"]: r for r in result["snapshot"]["comparison"]}
        self.assertEqual(rows["allocated peak"]["measured"], 49 * 2**20)
        self.assertIsNone(rows["not attributed"]["predicted"])

    def test_refused_with_a_reason(self):
        for text in ("", "hello\n", "{\"jobs\": 3}", "# nothing but comments float\n"):
            with tempfile.NamedTemporaryFile("w", suffix=".log") as f:
                f.write(text)
                f.flush()
                result, done = load(f.name)
            self.assertIsNone(result)
            self.assertEqual(done.returncode, 3, text)
            self.assertTrue(done.stderr.startswith("shardplan: "), text)
        self.assertEqual(load("/nonexistent/file")[1].returncode, 3)
        self.assertEqual(sample("ncclinfo_topology_search_8x4090.txt")[1].returncode, 3)

    def test_written_measurements_read_back(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "m.json")
            done = subprocess.run([PROGRAM, "catalog", "import", os.path.join(FOLDER, "nccl_09_all_reduce_16xH100_GOOD.txt"),
                                   "-o", out], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(out, encoding="utf-8") as f:
                self.assertEqual(json.load(f)["schema"], "shardplan.measurement/1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
