# SPDX-License-Identifier: Apache-2.0
"""Nodes as network namespaces on one machine: a bridge, a veth and a token bucket each.

net.py SHARDBENCH TEST [NODES]; exit 77 when not root or without namespaces. TEST is one of
bytes, rate, slow_node, slow_pair, and with SHARDPLAN_PROGRAM set accept, disk.
"""
import json
import os
import subprocess
import sys
import tempfile

SKIP = 77
RATE_MBIT = 200
BURST_KB = 32  # at RATE_MBIT; larger bursts let short messages run faster than the line
TAG = f"sb{os.getpid() % 10000}"


def burst(mbit):
    """The same time at every rate: a smaller bucket is refilled too late to keep a fast line busy."""
    return f"{max(BURST_KB, round(BURST_KB * mbit / RATE_MBIT))}kb"


def command(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    return done.returncode == 0


class Net:
    """`nodes` namespaces at 10.231.0.1, .2, ...; every interface limited to the rate."""

    def __init__(self, nodes, mbit=RATE_MBIT, own_cores=False):
        self.nodes, self.bridge, self.own_cores = nodes, f"{TAG}br", own_cores
        self.prelude = ""  # shell lines that each rank runs first
        self.names = [f"{TAG}n{i}" for i in range(nodes)]
        if os.environ.get("SHARDPLAN_OWN_LOAD"):  # a machine that builds meanwhile: above its other sessions
            self.prelude += "echo -20 > /proc/self/autogroup\n"
        self.guard()
        try:
            command("ip", "link", "add", self.bridge, "type", "bridge")
            command("ip", "addr", "add", "10.231.0.254/24", "dev", self.bridge)
            command("ip", "link", "set", self.bridge, "up")
            for i in range(nodes):
                self.add(i)
                self.limit(i, mbit)
        except RuntimeError:
            self.close()
            raise

    def add(self, i):
        name, outside = self.names[i], f"{TAG}v{i}"
        command("ip", "netns", "add", name)
        command("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
        command("ip", "link", "set", outside, "master", self.bridge, "up")
        command("ip", "-n", name, "addr", "add", f"10.231.0.{i + 1}/24", "dev", "eth0")
        command("ip", "-n", name, "link", "set", "eth0", "up")
        command("ip", "-n", name, "link", "set", "lo", "up")

    def limit(self, i, mbit):
        """What the node sends. A second bucket on its way in would drop, not only delay."""
        command("ip", "netns", "exec", self.names[i], "tc", "qdisc", "replace", "dev", "eth0",
                "root", "tbf", "rate", f"{mbit}mbit", "burst", burst(mbit), "latency", "200ms")

    def limit_pair(self, a, b, mbit):
        """Only what a and b send to each other, each way; the rest at the usual rate."""
        for i, other in ((a, b), (b, a)):
            tc = ["ip", "netns", "exec", self.names[i], "tc"]
            command(*tc, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb",
                    "default", "10")
            command(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:10", "htb",
                    "rate", f"{RATE_MBIT}mbit", "burst", burst(0), "cburst", burst(0))
            command(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:20", "htb",
                    "rate", f"{mbit}mbit", "burst", burst(0), "cburst", burst(0))
            command(*tc, "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "u32",
                    "match", "ip", "dst", f"10.231.0.{other + 1}/32", "flowid", "1:20")

    def guard(self):
        """A child that removes everything when this process is gone, however it went."""
        gone, self.alive = os.pipe()
        self.guardian = os.fork()
        if self.guardian == 0:
            os.setsid()
            os.close(self.alive)
            os.read(gone, 1)
            self.remove()
            os._exit(0)
        os.close(gone)

    def pinned(self):
        """Each node's rank keeps to its own processors, as on machines of its own."""
        each = os.cpu_count() // self.nodes
        if not self.own_cores or each == 0:
            return ""
        return (f"node=${{SHARDBENCH_NODE##*.}}; node=$((${{node%%/*}} - 1))\n"
                f"taskset -pc $((node * {each}))-$((node * {each} + {each - 1})) $$ > /dev/null\n")

    def close(self):
        os.close(self.alive)
        os.waitpid(self.guardian, 0)

    def remove(self):
        for i, name in enumerate(self.names):
            command("ip", "link", "del", f"{TAG}v{i}", check=False)
            command("ip", "netns", "del", name, check=False)
        command("ip", "link", "del", self.bridge, check=False)

    def run(self, arguments, folder):
        """One rank per node by mpirun; stdout of rank 0."""
        agent = os.path.join(folder, "agent.sh")
        with open(agent, "w") as f:
            f.write("#!/bin/sh\n# A remote shell that enters the namespace of an address.\n"
                    'host=$1; shift; node=$((${host##*.} - 1))\n'
                    f'exec ip netns exec {TAG}n$node env SHARDBENCH_NODE=$node sh -c "$*"\n')
        os.chmod(agent, 0o755)
        hosts = ",".join(f"10.231.0.{i + 1}:1" for i in range(self.nodes))
        rank = os.path.join(folder, "rank.sh")
        with open(rank, "w") as f:
            # MPI keeps memory until exit; our own leaks are looked for in the unit tests.
            f.write('#!/bin/sh\n# Namespaces share a host name: the address tells nodes apart.\n'
                    'ASAN_OPTIONS=detect_leaks=0; export ASAN_OPTIONS\n'
                    'SHARDBENCH_NODE=$(ip -o -4 addr show eth0 | tr -s " " | cut -d" " -f4)\n'
                    'export SHARDBENCH_NODE\n' + self.pinned() + self.prelude + 'exec "$@"\n')
        os.chmod(rank, 0o755)
        words = ["mpirun", "--allow-run-as-root", "-n", str(self.nodes), "--host", hosts,
                 "--bind-to", "none", "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self",
                 "--mca", "btl_tcp_if_include", "10.231.0.0/24", "--mca", "oob_tcp_if_include",
                 "10.231.0.0/24", "--mca", "mpi_yield_when_idle", "1", "--mca",
                 "orte_keep_fqdn_hostnames", "1", rank, BENCH, *arguments, "--force"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr


def transfer(kind, payload, count):
    return {"phase": "step", "kind": kind, "what": "x", "dtype": "bf16", "group": "world",
            "group_size": 2, "count": count, "payload_bytes": payload, "sent_bytes": 0,
            "link": "inter_node"}


def write_plan(path, parameters, kinds, units):
    """Textbook mode: every list moves each parameter in bf16, in `units` equal calls."""
    plan = {"schema": "shardplan.plan/1", "model": {"name": "m", "parameters": parameters},
            "plans": [{"strategy": "s", "volume": {
                "transfers": [transfer(k, 2 * parameters, units) for k in kinds]}}]}
    with open(path, "w") as f:
        json.dump(plan, f)
    return path


def test_bytes(folder, nodes):
    """Interface counters against planned bytes, and ZeRO-3 against DDP."""
    net = Net(nodes)
    total, parameters = {}, 8 << 20
    try:
        for name, kinds in (("ddp", ["all_reduce"]),
                            ("zero3", ["all_gather", "all_gather", "reduce_scatter"])):
            path = write_plan(os.path.join(folder, name + ".json"), parameters, kinds, 2)
            out, _ = net.run(["confirm", path, "--json", "-", "--budget", "4s", "-n", "3",
                              "--target", "0.2", "--no-verify"], folder)
            document = json.loads(out)
            total[name] = document["totals"]
            assert document["nodes"] == nodes, document["nodes"]
            sent = total[name]["measured_bytes"] * nodes
            ratio = total[name]["wire_bytes"] / sent
            print(f"{name}: planned {total[name]['planned_bytes'] * nodes:.0f} counted by ranks "
                  f"{sent:.0f} by interfaces {total[name]['wire_bytes']:.0f} ratio {ratio:.4f}")
            assert total[name]["ratio_bytes"] == 1
            assert 1 <= ratio <= 1.07, ratio
    finally:
        net.close()
    on_wires = total["zero3"]["wire_bytes"] / total["ddp"]["wire_bytes"]
    print(f"zero3 / ddp on the wires: {on_wires:.4f}")
    assert abs(on_wires - 1.5) <= 0.01, on_wires


def collectives(net, folder, more):
    out, err = net.run(["collectives", "--op", "all_gather", "--algorithm", "ring", "-b", "16MiB",
                        "-e", "16MiB", "--budget", "5s", "-n", "3", "--target", "0.1", "--json",
                        "-", *more], folder)
    return json.loads(out)["results"], err


def test_rate(folder, nodes):
    net = Net(nodes)
    try:
        results, _ = collectives(net, folder, [])
    finally:
        net.close()
    rate = RATE_MBIT * 1e6 / 8
    share = results[0]["busbw_bytes_per_s"] / rate
    print(f"all-gather of 16 MiB on {nodes} nodes: {share:.3f} of {RATE_MBIT} Mb/s as payload")
    assert share >= 0.75, share
    assert results[0]["errors"] == 0 and results[0]["nodes"] == nodes


def test_slow_node(folder, nodes):
    net = Net(nodes)
    try:
        net.limit(2, RATE_MBIT / 2)
        _, err = collectives(net, folder, ["--pairs", "--leave-one-out"])
    finally:
        net.close()
    print(err.strip())
    named = [line for line in err.splitlines() if "slow:" in line]
    assert len(named) == 1 and "rank 2 " in named[0], err


def test_slow_pair(folder, nodes):
    net = Net(nodes)
    try:
        net.limit_pair(1, 3, RATE_MBIT / 4)
        _, err = collectives(net, folder, ["--pairs"])
    finally:
        net.close()
    print(err.strip())
    named = [line for line in err.splitlines() if "slow:" in line]
    assert len(named) == 1 and "ranks 1 and 3" in named[0], err


def usable():
    return os.geteuid() == 0 and command("ip", "netns", "list", check=False)


# ---- accept on what was measured here ----------------------------------------------------------

def figure(value, provenance="spec"):
    return {"value": value, "provenance": provenance, "source": "tests/net", "low": value, "high": value}


def write_cluster(folder, nodes):
    """What the namespaces should be: one processor each behind a card of RATE_MBIT."""
    path = os.path.join(folder, "cluster.json")
    with open(path, "w") as f:
        json.dump({"schema": "shardplan.cluster/1", "name": "namespaces", "nodes": nodes, "gpus_per_node": 1,
                   "nics_per_node": 1, "nic_bytes_per_s": figure(RATE_MBIT * 1e6 / 8), "intra_fabric": "pcie",
                   "inter_fabric": "ethernet", "gpu": "t4"}, f)
    return path


def measure(net, folder, name):
    out, _ = net.run(["collectives", "--op", "all_gather,reduce_scatter", "--algorithm", "ring", "--wait", "nap",
                      "-b", "16MiB", "-e", "16MiB", "--budget", "3s", "-n", "3", "--target", "0.1", "--pairs",
                      "--leave-one-out", "--json", "-"], folder)
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(out)
    return path


def accept(folder, measurement, *words):
    done = subprocess.run([os.environ["SHARDPLAN_PROGRAM"], "accept", measurement, "--cluster",
                           os.path.join(folder, "cluster.json"), "--json", "-", *words],
                          capture_output=True, text=True, timeout=60)
    verdict = json.loads(done.stdout)
    culprits = {c["culprit"] for c in verdict["checks"] if c["status"] == "FAIL" and c["culprit"]}
    print(f"{verdict['verdict']}: {verdict['reason']}; culprits: {sorted(culprits)}", flush=True)
    for c in verdict["checks"]:
        if c["status"] == "FAIL":
            print(f"    {c['name']}: {c['reason']}")
    return verdict["verdict"], culprits


def test_accept(folder, nodes):
    """Healthy passes, by the topology alone and against a baseline; half a node and a capped pair fail by name."""
    write_cluster(folder, nodes)
    net = Net(nodes)
    try:
        baseline = measure(net, folder, "baseline.json")
        assert accept(folder, baseline) == ("PASS", set())
        assert accept(folder, measure(net, folder, "again.json"), "--baseline", baseline) == ("PASS", set())
        net.limit(2, RATE_MBIT / 2)
        verdict = accept(folder, measure(net, folder, "node.json"), "--baseline", baseline)
        assert verdict == ("FAIL", {"rank 2"}), verdict
        net.limit(2, RATE_MBIT)
        net.limit_pair(1, 3, RATE_MBIT / 4)
        verdict = accept(folder, measure(net, folder, "pair.json"), "--baseline", baseline)
        assert verdict == ("FAIL", {"pair 1,3"}), verdict
    finally:
        net.close()


class Throttle:
    """Reads of the folder's disk at most this fast, for processes that join; needs the blkio controller."""

    def __init__(self, folder, rate):
        disk = os.stat(folder).st_dev
        self.group = f"/sys/fs/cgroup/blkio/{TAG}"
        os.mkdir(self.group)
        with open(self.group + "/blkio.throttle.read_bps_device", "w") as f:
            f.write(f"{os.major(disk)}:{os.minor(disk)} {int(rate)}")

    def join(self):
        with open(self.group + "/cgroup.procs", "w") as f:
            f.write(str(os.getpid()))

    def close(self):
        os.rmdir(self.group)


def read_disk(folder, name, throttle=None):
    path = os.path.join(folder, name)
    settle = ["--settle", "10s"] if throttle else []
    subprocess.run([BENCH, "nvme", "--folder", os.getcwd(), "--pattern", "read", "--max-bytes", "128MiB", "-n", "3",
                    "--force", "-q", "--json", path, *settle], check=True, timeout=200,
                   preexec_fn=throttle.join if throttle else None)
    with open(path) as f:
        return path, json.load(f)["results"][0]["algbw_bytes_per_s"]


def test_disk(folder, nodes):
    """A disk throttled to a quarter: measured as such, and failed by name against its healthy self."""
    write_cluster(folder, nodes)
    baseline, healthy = read_disk(folder, "disk.json")
    limit = min(healthy / 4, 100e6)
    try:
        throttle = Throttle(os.getcwd(), limit)
    except OSError as e:
        print(f"skipped: no disk can be throttled here: {e}")
        sys.exit(SKIP)
    try:
        slow, rate = read_disk(folder, "slow.json", throttle)
    finally:
        throttle.close()
    print(f"disk {healthy / 1e6:.0f} MB/s, throttled to {limit / 1e6:.1f}, measured {rate / 1e6:.1f}")
    assert abs(rate / limit - 1) <= 0.02, rate / limit
    verdict = accept(folder, slow, "--baseline", baseline)
    assert verdict == ("FAIL", {"NVMe read"}), verdict


if __name__ == "__main__":
    BENCH = os.path.abspath(sys.argv[1])
    if not usable():
        print("skipped: network namespaces need root and iproute2")
        sys.exit(SKIP)
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 2 if sys.argv[2] == "bytes" else 4
    with tempfile.TemporaryDirectory() as scratch:
        globals()["test_" + sys.argv[2]](scratch, count)
    print("ok")
