#!/usr/bin/env python3
"""Writes results that the programs rarely have, for e2e/report_browser: report_odd.py FOLDER."""
import json
import sys


def run(index, workload, threads, rate, **more):
    """A run with one kind of operation."""
    get = {"count": 90, "rtts": 2.0, "verbs": 3.0, "bytes_read": 300.0, "bytes_written": 0.0, "p50_us": 0.5,
           "p99_us": 1.5, "p999_us": 15.0, "errors": more.pop("errors", 0)}
    return {"index": index, "workload": workload, "processes": 1, "threads": threads, "depth": 1, "keys": 100,
            "ops": 90, "ops_planned": 100, "ops_per_s": rate, "per_op": {"get": get}, **more}


def bench(pool, *runs):
    return {"farside": "1.0", "pool": pool, "key_size": 8, "key_size_max": 8, "value_size": 16,
            "value_size_max": 32, "theta": 0.99, "seed": 1, "runs": runs}


def experiment(name, lines, *rows):
    """An experiment with one table."""
    claim = {"name": "C1", "source": "5.4", "claim": "it rises", "verdict": "does not hold",
             "found": "it falls"}
    return {"name": name, "summary": "x", "after": "y", "here": "z", "claims": [claim],
            "cells": [{"name": "cell 7", "failure": "no memory"}],
            "tables": [{"title": "Rates:", "left": 1, "lines": lines, "rows": rows}]}


def paper(row, column, at, number_, source):
    return {"row": row, "column": column, "at": at, "number": number_, "source": source}


def claim(name, verdict):
    return {"name": name, "source": "5.4", "claim": "it <b>rises</b>", "verdict": verdict, "found": "it falls"}


def table(lines, rows, papers=(), stood_still=(), left=1, scaling=False):
    return {"title": "Rates:", "left": left, "lines": lines, "scaling": scaling, "rows": rows, "paper": papers,
            "stood_still": stood_still}


def loaded(workload, rate, **load):
    """A run on the modelled network."""
    parts = ("node_verbs", "node_receives", "node_sends", "node_pcie", "node_word", "client_verbs", "client_sends",
             "client_receives", "client_threads")
    return run("race", workload, 1, rate, load={part: load.get(part, 0.0) for part in parts})


# Numbers of papers, collapses, clients that stood still, and what limits the network.
PAPERS = [
    {**experiment("beside", None), "claims": [claim("RACE-CLAIM-1", "holds"), claim("RACE-CLAIM-12", "not run"),
                                              claim("SHARD-CLAIM-1", "does not hold"), claim("X", "holds")],
     "tables": [table(None, [["index", "M/s", "paper", "own"], ["RACE", 2.0, 4.0, "3"], ["CHIME", 1.0, "> 2", ""],
                             ["SHARD", None, 3.0, ""], ["RCuckoo", None, None, ""]],
                      [paper(1, 1, 2, 4.0, "<b>A"), paper(1, 1, 3, 3.0, "B"), paper(3, 1, 2, 3.0, "<b>A")],
                      [[4, 1]])],
     "cells": [{"name": "race-1", "runs": [loaded("a", 100, node_verbs=0.5, node_sends=0.2),
                                           loaded("a", 80, node_verbs=0.4, node_sends=0.2),
                                           loaded("a", 120, node_verbs=0.6), loaded("b", 70, client_sends=0.98),
                                           loaded("c", 1, node_word=1.0)]},
               {"name": "mem", "runs": [run("race", "a", 1, 10, load=None)]}],
     "stalls": [{"cell": "race-1", "workload": "c", "seed": 2, "seconds": 7.5, "ops": 1000}]},
    {**experiment("falls", None), "claims": [],
     "tables": [table("rows", [["clients:", "1", "16", "128", "16 to 1", "paper"],
                               ["RACE", 1.0, 10.0, 5.0, 10.0, 9.0], ["CHIME", 1.0, 2.0, 1.7, 2.0, None],
                               ["SHARD", 1.0, 2.0, None, 2.0, None]],
                      [paper(1, 2, None, 9.0, "A"), paper(1, 3, None, 8.5, "A"), paper(3, 3, None, 1.0, "A"),
                       paper(1, 4, 5, 9.0, "A")], [[3, 3]], scaling=True),
                table("rows", [["YCSB", "index", "16 clients", "128 clients"], ["A", "RACE", 4.0, 1.0],
                               ["", "CHIME", 2.0, 2.5], ["B", "RACE", 5.0, 5.5], ["E", "RACE", 3.0, None]],
                      left=2, scaling=True)]},
    {**experiment("alike", None, ["index", "clients", "M/s"], ["CHIME", "1", 1.0], ["", "128", 2.0],
                  ["RACE", "1", 4.0]), "claims": [], "cells": []},
    {**experiment("rows", "rows", ["theta:", "0.50", "0.99"], ["RACE", 9.0, 1.0]), "claims": []},
]

RESULTS = (
    bench("<b>&'</script><!--", run("<script>", '"><svg onload=x>', 1, 10), run("\u2028race", "c", 1, 5)),
    bench("clients", *(run("race", "c", clients, rate)
                       for clients, rate in ((1, 10), (8, 70), (2, 11), (104, 80), (100, 90)))),
    bench("twice", run("race", "c", 1, 10), run("race", "c", 1, 20)),
    bench("nothing"),
    bench("troubles", run("race", "a", 1, 10, stopped_by="FAR_POOL_FULL"),
          run("race", "b", 1, 10, interrupted=True),
          run("chime", "c", 2, 10, first_error="FAR_CONTENTION", errors=3)),
    bench("repeats", *(run("race", "c", 1, rate, repeat=n + 1) for n, rate in enumerate((36, 34, 35, 37)))),
    {"farside": "1.0", "quick": True, "experiments": [
        experiment("rows", "rows", ["theta:", "0.50", "0.99", "paper"], ["RACE", 1.5, 2.5, 7.0],
                   ["CHIME", 1.0, None, 3.0]),
        experiment("columns", "columns", ["clients", "race", "p99", "chime", "p99"], ["1", 1, 41, 2, None],
                   ["64", 12, 42, 13, 43]),
        experiment("bars", None, ["index", "rtts", "verbs", "paper"], ["RACE", 1.5, 2.5, "> 2"],
                   ["CHIME", 1.0, None, "-"])]},
    {"farside": "1.0", "quick": True, "experiments": PAPERS},
    bench("model:", loaded("a", 100, node_verbs=0.25, node_pcie=0.5, client_verbs=0.2), run("race", "b", 1, 10)),
    bench("falls", *(run("race", "c", clients, rate) for clients, rate in ((1, 10), (8, 70), (64, 40), (128, 50)))),
)

for number, result in enumerate(RESULTS):
    with open(f"{sys.argv[1]}/odd{number}.json", "w", encoding="utf-8") as file:
        json.dump(result, file)
