# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Sparring authors
"""The report of spr_compare, from what it measured: where sparse stops paying, Markdown, JSON and charts.

The one way in is report(o, results, environment): `o` is the command line as spr_compare read it; results are, for each side,
{key: {value: {median, min, max}}}, where a key is (tool of writes, size) or (tool of collectives, algorithm, size,
density; None when dense). Failures: Failed when gnuplot makes no picture or a file has come to exist meanwhile.
"""
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile

WRITES = ("spr_write_bw", "spr_write_lat")
ALLREDUCE = "spr_allreduce_perf"
DENSE, SPARSE = "dense_ring", "gtopk"
FILES = (".md", ".json", "-writes.svg", "-writes.png", "-collectives.svg", "-collectives.png")
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")


class Failed(Exception):
    """What went wrong, for the user."""


# ---- where sparse stops paying ----

def sparse_pays(o, results):
    """Where selection and gtopk are no faster than dense_ring, from the measured table alone."""
    cells = [{"size": size, "density": density, "dense_over_sparse":
              results[(ALLREDUCE, DENSE, size, None)]["time_us"]["median"]
              / results[(ALLREDUCE, SPARSE, size, density)]["time_us"]["median"]}
             for size in o.sizes for density in o.densities]
    slow = [cell for cell in cells if cell["dense_over_sparse"] <= 1]
    return {
        "algorithm": SPARSE, "against": DENSE, "cells": cells,
        "smallest_size_no_faster": min((cell["size"] for cell in slow), default=None),
        "largest_density_no_faster": max((cell["density"] for cell in slow), default=None),
        "by_size": [{"size": size,
                     "stops_at_density": min((c["density"] for c in slow if c["size"] == size), default=None),
                     "pays_up_to_density": max((c["density"] for c in cells if c["size"] == size and c not in slow), default=None)}
                    for size in o.sizes],
    }


def bytes_text(size):
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size} B"


def time_text(us):
    return f"{us / 1e6:.3g} s" if us >= 1e6 else f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} µs"


def ratio_text(ratio):
    return f"{ratio:.0f}" if ratio >= 99.5 else f"{ratio:.3g}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---:" for _ in head) + " |"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def spread(value, text):
    """The median, and the extremes where they lie more than a tenth apart from it."""
    wide = value["max"] > 1.1 * value["median"] or value["min"] < 0.9 * value["median"]
    return text(value["median"]) + (f" ({text(value['min'])} to {text(value['max'])})" if wide else "")


def write_part(o, of_a, of_b, stem):
    a, b = o.sides
    lines = ["## Point to point", "", f"![Bandwidth and latency]({stem}-writes.svg)", "",
             "One-sided writes from one process to another (spr_write_bw, spr_write_lat). Latency is half of a round trip, "
             "typical (median) and 99th percentile; bandwidth is 10^6 bytes per second.", ""]
    rows = []
    for size in o.write_sizes:
        rates = [side[("spr_write_bw", size)]["mb_per_s"] for side in (of_a, of_b)]
        times = [side[("spr_write_lat", size)] for side in (of_a, of_b)]
        rows.append((bytes_text(size), *(spread(rate, "{:.4g}".format) for rate in rates),
                     ratio_text(rates[1]["median"] / rates[0]["median"]),
                     *(spread(time["typical_us"], time_text) for time in times),
                     ratio_text(times[0]["typical_us"]["median"] / times[1]["typical_us"]["median"]),
                     *(time_text(time["p99_us"]["median"]) for time in times)))
    return lines + table(("size", f"MB/s {a.letter}", f"MB/s {b.letter}", "B/A", f"latency {a.letter}", f"latency {b.letter}", "A/B",
                          f"99 % {a.letter}", f"99 % {b.letter}"), rows)


def collective_part(o, of_a, of_b, stem):
    lines = ["## Collectives", "", f"![Time over size]({stem}-collectives.svg)", "",
             f"All-reduce of float vectors among {o.ranks} ranks: the whole operation of the slowest rank. For sparse algorithms "
             "that is one exchange: adding the residual, selection, exchange, and the sparse result put into the update. Every "
             "result was compared with an oracle.", ""]
    for density in (None, *o.densities):
        algos = [DENSE] if density is None else [algo for algo in o.algos if algo != DENSE]
        rows = []
        for size in o.sizes if algos else ():
            for algo in algos:
                times = [side[(ALLREDUCE, algo, size, density)] for side in (of_a, of_b)]
                rows.append((bytes_text(size), algo, *(spread(time["time_us"], time_text) for time in times),
                             ratio_text(times[0]["time_us"]["median"] / times[1]["time_us"]["median"]),
                             *(time_text(time["select_us"]["median"]) if density else "-" for time in times),
                             f"{times[0]['wire_bytes']['median']:,.0f}"))
        if rows:
            lines += ["### Dense" if density is None else f"### Density {density:g}", ""]
            lines += table(("vector", "algorithm", "time A", "time B", "A/B", "of it selection A", "selection B", "bytes sent by a rank"),
                           rows)
    return lines


def pays_part(o, pays):
    lines = ["## Where sparse stops paying", "",
             f"How many times faster {SPARSE} with selection is than {DENSE}; at 1 and below, sparse does not pay.", ""]
    for side in o.sides:
        here = pays[side.letter]
        cell = {(c["size"], c["density"]): c["dense_over_sparse"] for c in here["cells"]}
        lines += [f"### {side.letter}: `{side.text}`", ""]
        lines += table(("vector", *(f"density {density:g}" for density in o.densities), "stops paying at density"),
                       [(bytes_text(row["size"]),
                         *("{0}{1}{0}".format("" if cell[row["size"], density] > 1 else "**", f"{cell[row['size'], density]:.2f}")
                           for density in o.densities),
                         "not within the measured range" if row["stops_at_density"] is None else f"{row['stops_at_density']:g}")
                        for row in here["by_size"]])
        if here["smallest_size_no_faster"] is None:
            lines += [f"Sparse is faster at every size and density here: the point is not within the measured range, "
                      f"{bytes_text(o.sizes[0])} to {bytes_text(o.sizes[-1])} and densities {o.densities[0]:g} to "
                      f"{o.densities[-1]:g}.", ""]
        else:
            lines += [f"The smallest vector for which {SPARSE} is no faster: {bytes_text(here['smallest_size_no_faster'])}; the "
                      f"largest density at which it is no faster: {here['largest_density_no_faster']:g} (bold above).", ""]
    return lines


def short_part(o, of_a, of_b):
    """The answer in a few lines."""
    a, b = o.sides
    lines = ["## In short", ""]
    if "writes" in o.parts:
        size, small = o.write_sizes[-1], o.write_sizes[0]
        rate = [side[("spr_write_bw", size)]["mb_per_s"]["median"] for side in (of_a, of_b)]
        late = [side[("spr_write_lat", small)]["typical_us"]["median"] for side in (of_a, of_b)]
        lines += [f"- Writes of {bytes_text(size)}: A {rate[0]:.4g} MB/s, B {rate[1]:.4g} MB/s. "
                  f"Latency of {bytes_text(small)}: A {time_text(late[0])}, B {time_text(late[1])}."]
    if "collectives" in o.parts:
        size, density = o.sizes[-1], o.densities[0]
        keys = [(ALLREDUCE, DENSE, size, None), *([(ALLREDUCE, SPARSE, size, density)] if SPARSE in o.algos else [])]
        for key in keys:
            ta, tb = (side[key]["time_us"]["median"] for side in (of_a, of_b))
            slower, ratio = ("A", ta / tb) if ta >= tb else ("B", tb / ta)
            slow = f"{slower} takes {ratio_text(ratio)} times as long" if ratio > 1.05 else "about the same"
            lines += [f"- {key[1]} of {bytes_text(size)}{f' at density {key[3]:g}' if key[3] else ''}: A {time_text(ta)}, "
                      f"B {time_text(tb)}; {slow}."]
        if len(keys) == 2:
            sparse, dense = of_a[keys[1]]["time_us"]["median"], of_b[keys[0]]["time_us"]["median"]
            lines += [f"- {SPARSE} at density {density:g} over A takes {ratio_text(sparse / dense)} times as long as {DENSE} over B "
                      f"({time_text(sparse)} and {time_text(dense)})."]
    return lines + [""]


def markdown(o, results, pays, document):
    a, b = o.sides
    of_a, of_b, m = results[a], results[b], document["machine"]
    lines = [f"# {document['title']}", "",
             f"A is `{a.text}`, B is `{b.text}`{', between ' + ' and '.join(o.hosts) if o.hosts else ''}. {o.rounds} round"
             f"{'s' if o.rounds > 1 else ''}, A and B in turns; medians over them, with the extremes where they are more than a "
             f"tenth away. {m['cores']} CPUs ({m['cpu']}), {m['system']}; sparring {document['library']}; {document['date']}. "
             "Written by:", "", f"    {document['command']}", ""]
    lines += short_part(o, of_a, of_b)
    if o.notes_text:
        lines += [o.notes_text, ""]
    if "writes" in o.parts:
        lines += write_part(o, of_a, of_b, o.name)
    if "collectives" in o.parts:
        lines += collective_part(o, of_a, of_b, o.name)
        lines += pays_part(o, pays) if pays else []
    lines += ["## Commands", "", "Those of the first job of each kind; all are in the JSON file.", ""]
    for side in o.sides:
        seen = set()
        for command in side.commands:
            tool = next(name for name in (*WRITES, ALLREDUCE) if name in command)
            if tool not in seen:
                lines += [f"    {command}"]
            seen.add(tool)
    return "\n".join(lines).rstrip() + "\n"


def machine():
    cpu = "?"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpu = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")
    except OSError:
        pass
    u = os.uname()
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "system": f"{u.sysname} {u.release} {u.machine}"}


def document_of(o, results, pays, environment):
    rows = {"spr_write_bw": [], "spr_write_lat": [], ALLREDUCE: []}
    for key in results[o.sides[0]]:
        head = {"size": key[1]} if key[0] != ALLREDUCE else {"algo": key[1], "size": key[2], "density": key[3]}
        rows[key[0]].append({**head, **{side.letter: results[side][key] for side in o.sides}})
    return {
        "schema": "sparring.compare", "version": 1, "library": o.sides[0].library,
        "title": o.title or f"{o.sides[0].text} against {o.sides[1].text}",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "machine": machine(),
        "command": shlex.join(["spr_compare", *sys.argv[1:]]), "hosts": o.hosts, "ranks": o.ranks, "rounds": o.rounds,
        "iterations": o.iters,
        "environment": {name: value for name, value in sorted(environment.items()) if name.startswith("SPR_")},
        "sides": {side.letter: {"side": side.text, "transport": side.transport, "netbed": side.netbed,
                                "commands": side.commands} for side in o.sides},
        "write_bandwidth": rows["spr_write_bw"], "write_latency": rows["spr_write_lat"], "collectives": rows[ALLREDUCE],
        "sparse": pays,
    }


# ---- charts ----

def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def data_block(name, rows):
    return "\n".join((f"${name} << EOD", *(" ".join(f"{cell:.6g}" for cell in row) for row in rows), "EOD"))


def size_tics(sizes):
    return "set xtics (" + ", ".join(f"{quoted(bytes_text(size))} {size}" for size in sizes) + ") rotate by -30"


def style(title, panels):
    return ["unset mouse", "set termoption noenhanced", "set border 3 linecolor rgb '#808080'", "set tics nomirror",
            "set grid linecolor rgb '#dddddd' linetype 1", "set logscale xy",
            f"set multiplot layout 1,{panels} title {quoted(title)} font ',14' margins 0.06,0.97,0.2,0.8 spacing 0.06,0.1"]


def curve(block, column, colour, dashed, title):
    return (f"${block} using 1:{column} with linespoints linewidth 2 pointtype {6 if dashed else 7} pointsize 0.8 "
            f"dashtype {2 if dashed else 1} linecolor rgb '{colour}' title {quoted(title)}")


def writes_script(o, results, title):
    rows = [(size, *(results[side]["spr_write_bw", size]["mb_per_s"]["median"] for side in o.sides),
             *(results[side]["spr_write_lat", size]["typical_us"]["median"] for side in o.sides)) for size in o.write_sizes]
    names = [f"{side.letter}: {side.text}" for side in o.sides]
    lines = [data_block("writes", rows), *style(title, 2), size_tics(o.write_sizes),
             f"set xrange [{o.write_sizes[0] / 1.5:.6g}:{o.write_sizes[-1] * 1.5:.6g}]"]
    for first, what, key in ((2, "Bandwidth in MB/s", "bottom right"), (4, "Latency in µs (typical)", "top left")):
        lines += [f"set title {quoted(what)}", f"set key {key}", "plot " + ", ".join(
            curve("writes", first + i, COLOURS[i], i, names[i]) for i in (0, 1))]
    return "\n".join([*lines, "unset multiplot", ""])


def collectives_script(o, results, title):
    lines, panels = [], []
    for at, density in enumerate(o.densities):
        lines.append(data_block(f"d{at}", [(size, *(
            results[side][ALLREDUCE, algo, size, None if algo == DENSE else density]["time_us"]["median"] / 1e3
            for algo in o.algos for side in o.sides)) for size in o.sizes]))
        panels += [f"set title {quoted(f'Density {density:g}, milliseconds')}", "plot " + ", ".join(
            curve(f"d{at}", 2 + 2 * i + j, COLOURS[i % len(COLOURS)], j, f"{algo} {side.letter}")
            for i, algo in enumerate(o.algos) for j, side in enumerate(o.sides))]
    lows = [value["time_us"]["median"] / 1e3 for side in o.sides for key, value in results[side].items() if key[0] == ALLREDUCE]
    return "\n".join([*lines, *style(f"{title} ({o.ranks} ranks; A solid, B dashed)", len(o.densities)), size_tics(o.sizes),
                      f"set xrange [{o.sizes[0] / 1.5:.6g}:{o.sizes[-1] * 1.5:.6g}]",
                      f"set yrange [{min(lows) / 1.5:.6g}:{max(lows) * 6:.6g}]",
                      "set key top left maxrows 4 samplen 1.5 font ',9'", *panels, "unset multiplot", ""])


def draw(script, panels):
    """The picture's bytes by ending."""
    pictures = {}
    with tempfile.TemporaryDirectory() as scratch:
        for ending, terminal in (("svg", "svg"), ("png", "pngcairo")):
            out = os.path.join(scratch, f"chart.{ending}")
            head = (f"set terminal {terminal} size {max(900, 460 * panels)},440 background rgb 'white' font 'DejaVu Sans,"
                    f"{11 if ending == 'svg' else 9}'\nset output {quoted(out)}\n")
            done = subprocess.run(["gnuplot"], input=head + script, text=True, capture_output=True, check=False)
            if done.returncode or not os.path.exists(out) or not os.path.getsize(out):
                raise Failed(f"gnuplot: {done.stderr.strip() or 'no picture'}")
            with open(out, "rb") as file:
                pictures[ending] = file.read()
    return pictures


def link_or_move(beside, path):
    """Gives the file its name, which nobody may have."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.rename(beside, path)


def write_whole(o, path, data):
    """Beside it first; then it appears, and takes the place of another only under --force."""
    beside = f"{path}.new.{os.getpid()}"
    with open(beside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        if o.force:
            os.replace(beside, path)
        else:
            link_or_move(beside, path)
    except FileExistsError as error:
        raise Failed(f"{path} has come to exist, and is not replaced") from error
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


def report(o, results, environment):
    """Writes all files, and the answer in short to standard output."""
    pays = None
    if "collectives" in o.parts and SPARSE in o.algos:
        pays = {side.letter: sparse_pays(o, results[side]) for side in o.sides}
    document = document_of(o, results, pays, environment)
    files = {}
    for part, script, panels in (("writes", writes_script, 2), ("collectives", collectives_script, len(o.densities))):
        if part in o.parts:
            files.update((f"-{part}.{ending}", data) for ending, data in
                         draw(script(o, results, document["title"]), panels).items())
    files[".json"] = (json.dumps(document, indent=1) + "\n").encode()
    files[".md"] = markdown(o, results, pays, document).encode()
    for end, data in files.items():
        write_whole(o, os.path.join(o.out, o.name + end), data)
    print("\n".join(short_part(o, *(results[side] for side in o.sides))[2:]).strip())
    print(f"The report: {os.path.join(o.out, o.name)}.md")
