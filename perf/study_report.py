# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Sparring authors
"""Tables and one JSON file of what the convergence study has trained so far.

report() reads the files of the plan's cells; a cell's figures are means over its seeds, the spread is the sample's standard
deviation, and the difference to dense_ring is taken seed by seed. Bytes are per step and rank; "steady" leaves out the epochs
before the last, and with them the density's warm-up.
"""
import glob
import json
import os
import statistics

import study_plan

MARKS = ("<!-- study: begin -->", "<!-- study: end -->")


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def steady(run, name):
    """Bytes per step and rank in the last epoch."""
    return run["epochs"][-1][name] / run["config"]["steps_per_epoch"] / run["config"]["ranks"]


def measure(cell, run):
    """What one run says."""
    return {
        "metric": run["epochs"][-1][study_plan.MODELS[cell.model].metric],
        "bytes": steady(run, "bytes_all_ranks"), "value_bytes": steady(run, "value_bytes_all_ranks"),
        "all_bytes": run["totals"]["bytes_per_step"], "all_value_bytes": run["totals"]["value_bytes_per_step"],
        "steps": run["totals"]["steps"], "parameters": run["config"]["parameters"], "digest": run["totals"]["weights_digest"],
    }


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else None


def summarise(cell, runs, dense):
    """runs and dense: {seed: measured}."""
    first = next(iter(runs.values()))
    both = sorted(set(runs) & set(dense))
    differences = [runs[seed]["metric"] - dense[seed]["metric"] for seed in both]
    mean = {name: statistics.mean(run[name] for run in runs.values())
            for name in ("metric", "bytes", "value_bytes", "all_bytes", "all_value_bytes")}
    row = {"model": cell.model, "ranks": cell.ranks, "batch_per_rank": cell.batch, "algo": cell.algo, "density": float(cell.density),
           "variant": cell.variant, "warmup_epochs": cell.warmup, "label": cell.label, "lr": float(cell.rate),
           "parameters": first["parameters"], "steps": first["steps"], "seeds": sorted(runs),
           "metric": mean["metric"], "metric_spread": spread([run["metric"] for run in runs.values()]),
           "metrics": [runs[seed]["metric"] for seed in sorted(runs)],
           "minus_dense": statistics.mean(differences) if both else None, "minus_dense_spread": spread(differences),
           "bytes_per_step": mean["bytes"], "value_bytes_per_step": mean["value_bytes"],
           "bytes_per_step_with_warmup": mean["all_bytes"], "value_bytes_per_step_with_warmup": mean["all_value_bytes"],
           "digests": [runs[seed]["digest"] for seed in sorted(runs)]}
    if dense:
        for name in ("bytes", "value_bytes"):
            most = statistics.mean(run[name] for run in dense.values())
            row[f"fewer_{name}"] = most / mean[name] if mean[name] else None
    return row


def collect(directory):
    """[(group, question, rows)]"""
    measured = {}
    for _, cell, seed in study_plan.runs():
        run = load(os.path.join(directory, f"{cell.name}_s{seed}.json"))
        if run:
            measured.setdefault(cell, {})[seed] = measure(cell, run)
    return [(name, question, [summarise(cell, measured[cell], measured.get(cell.dense, {})) for cell in cells if cell in measured])
            for name, question, cells in study_plan.GROUPS]


def number(value, digits, sign=""):
    return "–" if value is None else f"{value:{sign}.{digits}f}".replace("-", "−")


def with_spread(mean, deviation, digits, sign=""):
    return number(mean, digits, sign) + ("" if deviation is None else f" ± {number(deviation, digits)}")


def ratio(value):
    return "–" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def table(rows):
    """Markdown, a row for each cell."""
    lines = ["| model | P | batch | steps | exchange | seeds | result | against dense | bytes | value bytes | fewer | fewer values |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        model = study_plan.MODELS[row["model"]]
        digits = 2 if model.unit == "%" else 3
        is_dense = row["algo"] == study_plan.DENSE
        lines.append("| " + " | ".join([
            row["model"], str(row["ranks"]), str(row["batch_per_rank"]), f"{row['steps']:,}", row["label"], str(len(row["seeds"])),
            with_spread(row["metric"], row["metric_spread"], digits) + (" %" if model.unit == "%" else " bits"),
            "" if is_dense else with_spread(row["minus_dense"], row["minus_dense_spread"], digits, "+"),
            f"{row['bytes_per_step']:,.0f}", f"{row['value_bytes_per_step']:,.0f}",
            "" if is_dense else ratio(row.get("fewer_bytes")), "" if is_dense else ratio(row.get("fewer_value_bytes"))]) + " |")
    return lines


def markdown(groups):
    lines = []
    for name, question, rows in groups:
        if rows:
            lines += ["", f"### {name}: {question}", "", *table(rows)]
    return "\n".join(lines).strip() + "\n"


def replace_file(path, text):
    with open(path + ".new", "w", encoding="utf-8") as out:
        out.write(text)
    os.rename(path + ".new", path)


def put_into(path, tables):
    """Between the two marks of a file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(MARKS[0], 1)
    after = rest.split(MARKS[1], 1)[1]
    replace_file(path, f"{before}{MARKS[0]}\n\n{tables}\n{MARKS[1]}{after}")


def report(directory, json_path, into, out):
    groups = collect(directory)
    tables = markdown(groups)
    out.write("\n" + tables)
    if into:
        put_into(into, tables)
    if json_path:
        planned = len(list(study_plan.runs()))
        whole = {"schema": "sparring.study", "version": 1,
                 "runs_planned": planned, "runs_done": sum(os.path.exists(os.path.join(directory, f"{cell.name}_s{seed}.json"))
                                                           for _, cell, seed in study_plan.runs()),
                 "groups": [{"name": name, "question": question, "cells": rows} for name, question, rows in groups]}
        replace_file(json_path, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def tuning(directory, out):
    """Test losses by learning rate, for study_plan.py."""
    found = {}
    for path in glob.glob(os.path.join(directory, "tune_*.json")):
        run = load(path)
        config = run["config"]
        found.setdefault((config["model"], config["ranks"] * config["batch_per_rank"]), []).append(
            (config["lr"], run["epochs"][-1]["test_loss"]))
    for model, samples in sorted(found):
        losses = ", ".join(f"{lr:g}: {loss:.4f}" for lr, loss in sorted(found[model, samples]))
        out.write(f"{model}, {samples} samples a step: {losses}\n")
