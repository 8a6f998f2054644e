"""Tables for the flow tests of bench_join, and an answer that owes nothing to it.

    join_tables.py make KIND DIR        writes DIR/lineitem and DIR/partsupp, prints the four numbers as JSON
    join_tables.py check WANTED LIMITS [WORK]
                                        reads bench_join --json --verify from standard input; WANTED is what make printed, or ""
                                        when only the form is to be checked; LIMITS is "device pinned host" in bytes;
                                        WORK is where rows are to have been worked on
"""
import json
import os
import random
import struct
import sys

LINEITEM = ["l_partkey", "l_suppkey", "l_quantity", "l_extendedprice"]
PARTSUPP = ["ps_partkey", "ps_suppkey", "ps_supplycost", "ps_availqty"]
ANSWER = ["rows", "sum_extendedprice", "sum_supplycost_x_quantity", "sum_availqty"]
TIERS = ["device", "pinned_host", "host", "disk"]
KEYS = ANSWER + ["work", "wall_s", "load_s", "partition_s", "join_s", "input_bytes", "peak_bytes", "copy_bytes",
                 "disk_written_bytes", "disk_read_bytes", "admitted_bytes", "dropped_bytes", "verified"]


def write_shard(path, values, width):
    text = "{'descr': '<i%d', 'fortran_order': False, 'shape': (%d,), }" % (width, len(values))
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        f.write(struct.pack("<%d%s" % (len(values), "i" if width == 4 else "q"), *values))


def write_table(folder, names, rows, widths, rng):
    """Every column is cut into shards at rows of its own; some shards are empty."""
    for c, name in enumerate(names):
        os.makedirs(os.path.join(folder, name))
        values = [row[c] for row in rows]
        cuts = sorted(rng.randrange(len(rows) + 1) for _ in range(rng.randrange(4)))
        cuts = [0] + cuts + [len(rows)]
        for i in range(len(cuts) - 1):
            write_shard("%s/%s/shard_%04d.npy" % (folder, name, i), values[cuts[i]:cuts[i + 1]], widths[c])


def answer(lineitem, partsupp):
    by_key = {}
    for p, s, cost, qty in partsupp:
        n, costs, qtys = by_key.get((p, s), (0, 0, 0))
        by_key[(p, s)] = (n + 1, costs + cost, qtys + qty)
    total = [0, 0, 0, 0]
    for p, s, quantity, price in lineitem:
        n, costs, qtys = by_key.get((p, s), (0, 0, 0))
        total[0] += n
        total[1] += n * price
        total[2] += costs * quantity
        total[3] += qtys
    return dict(zip(ANSWER, total))


def rows(rng, n, key, wide=False):
    top = 2**54 if wide else 2**30  # the sum of 60000 products of 2**108 fits into 128 bits
    return [key(i) + (rng.randrange(-top, top), rng.randrange(-top, top)) for i in range(n)]


def make(kind, folder):
    rng = random.Random(kind)
    uniform = lambda n: lambda i: (rng.randrange(-n, n), rng.randrange(3))
    hot = lambda i: (7, 7) if rng.random() < 0.5 else (rng.randrange(20000), rng.randrange(4))
    same = lambda i: (42, -42)
    widths = ([4] * 4, [4] * 4)
    if kind == "mixed":      # the keys of one side are int32, those of the other int64
        lineitem, partsupp = rows(rng, 60000, uniform(9000)), rows(rng, 30000, uniform(9000), True)
        widths = ([4, 8, 4, 8], [8, 4, 8, 8])
    elif kind == "wide":     # beyond 32 bits everywhere
        key = lambda i: (rng.randrange(5000) * 2**45 - 2**55, rng.randrange(4) * 2**40)
        lineitem, partsupp = rows(rng, 60000, key, True), rows(rng, 20000, key, True)
        widths = ([8] * 4, [8] * 4)
    elif kind == "hot":      # one key has half of all rows of both sides
        lineitem, partsupp = rows(rng, 120000, hot), rows(rng, 60000, hot)
    elif kind == "same":     # one key has them all
        lineitem, partsupp = rows(rng, 150000, same), rows(rng, 80000, same)
    elif kind == "swapped":  # partsupp is by far the larger side
        lineitem, partsupp = rows(rng, 3000, uniform(40000)), rows(rng, 150000, uniform(40000))
    elif kind == "disjoint":
        lineitem, partsupp = rows(rng, 20000, lambda i: (i, 1)), rows(rng, 20000, lambda i: (i, 2))
    elif kind == "empty":
        lineitem, partsupp = [], []
    elif kind == "empty_lineitem":
        lineitem, partsupp = [], rows(rng, 50000, uniform(9000))
    elif kind == "one":
        lineitem, partsupp = [(1, 2, 3, 4)], [(1, 2, 5, 6)]
    else:
        sys.exit("unknown kind " + kind)
    write_table(os.path.join(folder, "lineitem"), LINEITEM, lineitem, widths[0], rng)
    write_table(os.path.join(folder, "partsupp"), PARTSUPP, partsupp, widths[1], rng)
    print(json.dumps(answer(lineitem, partsupp)))


def check(wanted, limits, work=None):
    text = sys.stdin.read()
    result = json.loads(text)
    assert text.count("\n") == 1 and list(result) == KEYS, list(result)
    assert result["verified"] is True, result
    assert list(result["peak_bytes"]) == TIERS + ["meta"], result
    assert list(result["admitted_bytes"]) == TIERS[:3], result
    assert list(result["copy_bytes"]) == ["%s-to-%s" % (a, b) for a in TIERS for b in TIERS if a != b], result
    for key in ANSWER + ["input_bytes", "disk_written_bytes", "disk_read_bytes", "dropped_bytes"]:
        assert type(result[key]) is int, key
    if wanted:
        got = {key: result[key] for key in ANSWER}
        assert got == json.loads(wanted), "wanted %s, got %s" % (wanted, json.dumps(got))
    assert result["work"] == (work or result["work"]), "wanted %s, got %s" % (work, result["work"])
    budgets = [int(limit) for limit in limits.split()]
    for tier, budget in zip(TIERS, budgets):
        assert result["peak_bytes"][tier] <= budget, "%s: peak %d, budget %d" % (
            tier, result["peak_bytes"][tier], budget)
    assert result["disk_written_bytes"] >= result["input_bytes"] - sum(budgets), result


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
else:
    check(*sys.argv[2:])
