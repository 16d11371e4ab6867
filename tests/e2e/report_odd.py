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
)

for number, result in enumerate(RESULTS):
    with open(f"{sys.argv[1]}/odd{number}.json", "w", encoding="utf-8") as file:
        json.dump(result, file)
