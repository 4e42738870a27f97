# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Sparring authors
"""What the tests of the tools share: a list of test functions, run one after the other, with the last line
"N passed, N failed, N skipped" and exit status 0, 1, or 77 when everything was skipped.

    @test
    def exit_status_of_the_first_failure(): ...        raises AssertionError, or Skip("reason")
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid

_tests = []
LIMIT = 120  # seconds after which a program under test is taken for hung


class Skip(Exception):
    pass


def test(function):
    _tests.append(function)
    return function


def need_root():
    if os.geteuid() != 0:
        raise Skip("needs root, for network namespaces")
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        raise Skip("network namespaces cannot be made here")


class Job:
    """A program started with a mark in its environment, by which its descendants are found, wherever they went."""

    def __init__(self, argv, env=None, **options):
        self.mark = "SPRTEST_MARK=" + uuid.uuid4().hex
        environment = dict(os.environ if env is None else env)
        for name in [n for n in environment if n.startswith("SPR_") and env is None]:
            del environment[name]
        environment.update([self.mark.split("=")])
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen([str(a) for a in argv], env=environment, text=True, errors="replace",
                                        stdin=subprocess.DEVNULL, **options)

    def wait(self):
        """Sets out, err and status."""
        try:
            self.out, self.err = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.process.args} does not end")
        self.status = self.process.returncode
        return self

    def alive(self):
        """Pids of all processes that carry the mark, zombies left out."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if self.mark.encode() not in f.read().split(b"\0"):
                        continue
                with open(f"/proc/{pid}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] != "Z":
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def until(self, condition, what):
        """Waits for a condition; the end of waiting is an error, not a measurement."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for: {what}")
            time.sleep(0.02)

    def gone(self):
        self.until(lambda: not self.alive(), "no process of the run is left")


def run(argv, **options):
    return Job(argv, **options).wait()


def network():
    """What a run must not change: links here that could be ours, and named namespaces (not those of perf/netbed, which
    somebody else may be using meanwhile)."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    ours = re.compile(r"port\d+|bridge|veth|eth")
    return (sorted(name for name in (line.split(":")[1].strip() for line in links.splitlines()) if ours.match(name)),
            sorted(line for line in names.splitlines() if not line.startswith(("sprbed", "sprtest"))))


def namespaces_of(pids):
    """Network namespaces that these processes are in or hold open, our own left out."""
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
            for fd in os.listdir(f"/proc/{pid}/fd"):
                found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    return {n for n in found if n.startswith("net:")} - {os.readlink("/proc/self/ns/net")}


def everybody():
    return [pid for pid in os.listdir("/proc") if pid.isdigit()]


def fake_tool(directory, name, text):
    """An executable script that stands in for a tool."""
    path = os.path.join(directory, name)
    with open(path, "w") as f:
        f.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)


def main():
    passed = failed = skipped = 0
    wanted = os.environ.get("TOOLCHECK_ONLY")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # meson may hand it down ignored
    for function in _tests:
        name = function.__name__
        if wanted and wanted not in name:
            continue
        try:
            function()
            passed += 1
            print(f"pass {name}")
        except Skip as reason:
            skipped += 1
            print(f"skip {name}: {reason}")
        except Exception:
            failed += 1
            print(f"fail {name}")
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 77 if skipped and not passed else 0)


def temporary_directory():
    return tempfile.TemporaryDirectory(prefix="spr_tools_")
