#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Sparring authors
"""Machines for tests, as hwloc reads them: make.py DIRECTORY writes one XML file for each.

A machine is packages (one NUMA node each, cores from 0 on) with buses below them. A bus is a host bridge with devices, or
switches of devices; bus numbers are given in order, so that every device has an address of its own. What is here is what
decisions go by; caches, memory sizes and links are not.
"""
import os
import sys

NVIDIA, MELLANOX, VIRTIO = 0x10DE, 0x15B3, 0x1AF4


class Gpu:
    def __init__(self, model="H100"):
        self.model = model


class Nic:
    def __init__(self, interface, rdma=None, active=True):
        self.interface, self.rdma, self.active = interface, rdma, active


class Switch:
    """A PCIe switch: one upstream port, a downstream port for each device."""

    def __init__(self, *devices):
        self.devices = devices


class Bus:
    """A host bridge with a root port for each thing below; flat: devices directly on its bus, as guests have it."""

    def __init__(self, *below, flat=False):
        self.below, self.flat = below, flat


class Package:
    def __init__(self, n_cpus, *buses):
        self.n_cpus, self.buses = n_cpus, buses


class Machine:
    """allowed: how many CPUs, from the first on, the cgroup allows; None: all. top: buses that hang from no package."""

    def __init__(self, *packages, top=(), allowed=None):
        self.packages, self.top, self.allowed = packages, top, allowed


def pairs(first):
    """A switch of two GPUs and two NICs."""
    return Switch(Gpu(), Nic(f"eth{first}", f"mlx5_{first}"), Gpu(), Nic(f"eth{first + 1}", f"mlx5_{first + 1}"))


MACHINES = {
    "one-socket": Machine(Package(8, Bus(Gpu(), Nic("eth0", "mlx5_0")))),
    "two-sockets": Machine(Package(16, Bus(Gpu(), Nic("eth0", "mlx5_0"))), Package(16, Bus(Gpu(), Nic("eth1", "mlx5_1")))),
    "8-gpu-8-nic": Machine(Package(32, Bus(pairs(0), pairs(2))), Package(32, Bus(pairs(4), pairs(6)))),
    "4-gpu-1-nic": Machine(Package(16, Bus(Gpu(), Gpu(), Nic("eth0", "mlx5_0"))), Package(16, Bus(Gpu(), Gpu()))),
    "vm-flat": Machine(Package(4), top=(Bus(Nic("eth0", "mlx5_0"), Gpu(), Nic("eth1", "mlx5_1"), flat=True),)),
    "container": Machine(Package(8), allowed=4),
    "nic-without-gpu": Machine(Package(8, Bus(Nic("eth0", "mlx5_0"), Nic("eth1", "mlx5_1", active=False))),
                               Package(8, Bus(Nic("eth2", "mlx5_2")))),
    "gpu-without-nic": Machine(Package(8, Bus(Gpu())), Package(8, Bus(Gpu()))),
    "ethernet": Machine(Package(8, Bus(Nic("eth0"))), Package(8, Bus(Gpu(), Nic("eth1")))),
}


class Writer:
    def __init__(self):
        self.lines, self.depth, self.id, self.bus = [], 0, 0, 0

    def line(self, text):
        self.lines.append("  " * self.depth + text)

    def open(self, kind, attributes, empty=False):
        self.id += 1
        words = "".join(f' {name}="{value}"' for name, value in {**attributes, "gp_index": self.id}.items())
        self.line(f'<object type="{kind}"{words}{"/>" if empty else ">"}')
        self.depth += not empty

    def close(self):
        self.depth -= 1
        self.line("</object>")

    def info(self, name, value):
        self.line(f'<info name="{name}" value="{value}"/>')

    def next_bus(self):
        self.bus += 1
        return self.bus


def mask(first, n):
    """hwloc's text of a set: words of 32 bits, the highest first."""
    bits = ((1 << n) - 1) << first
    words = []
    while True:
        words.append(f"0x{bits & 0xffffffff:08x}")
        bits >>= 32
        if not bits:
            return ",".join(reversed(words))


def sets(cpus, nodes):
    return {"cpuset": cpus, "complete_cpuset": cpus, "nodeset": nodes, "complete_nodeset": nodes}


def pci(w, bus, slot, kind, vendor, device):
    w.open("PCIDev", {"pci_busid": f"0000:{bus:02x}:{slot:02x}.0",
                      "pci_type": f"{kind:04x} [{vendor:04x}:{device:04x}] [0000:0000] 01", "pci_link_speed": "0.000000"})


def write_device(w, device, bus, slot):
    if isinstance(device, Gpu):
        pci(w, bus, slot, 0x0302, NVIDIA, 0x2330)
        w.info("PCIDevice", device.model)
        w.close()
        return
    pci(w, bus, slot, 0x0200, MELLANOX if device.rdma else VIRTIO, 0x1021)
    w.open("OSDev", {"name": device.interface, "osdev_type": 2}, empty=True)
    if device.rdma:
        w.open("OSDev", {"name": device.rdma, "osdev_type": 3})
        w.info("Port1State", 4 if device.active else 1)
        w.close()
    w.close()


def bridge(w, bus, slot, depth, first, last):
    w.open("Bridge", {"bridge_type": "1-1", "depth": depth, "bridge_pci": f"0000:[{first:02x}-{last:02x}]",
                      "pci_busid": f"0000:{bus:02x}:{slot:02x}.0", "pci_type": "0604 [8086:2030] [0000:0000] 01",
                      "pci_link_speed": "0.000000"})


def buses_of(thing):
    """How many bus numbers a thing behind a root port takes."""
    return 2 + len(thing.devices) if isinstance(thing, Switch) else 1


def write_bus(w, bus):
    root = w.next_bus() - 1
    last = root if bus.flat else root + sum(buses_of(thing) for thing in bus.below)
    w.open("Bridge", {"bridge_type": "0-1", "depth": 0, "bridge_pci": f"0000:[{root:02x}-{last:02x}]"})
    for slot, thing in enumerate(bus.below, 1):
        if bus.flat:
            write_device(w, thing, root, slot)
            continue
        behind = w.next_bus() - 1
        bridge(w, root, slot, 1, behind, behind + buses_of(thing) - 1)
        if isinstance(thing, Switch):
            inside = w.next_bus() - 1
            bridge(w, behind, 0, 2, inside, inside + len(thing.devices))
            for port, device in enumerate(thing.devices):
                end = w.next_bus() - 1
                bridge(w, inside, port, 3, end, end)
                write_device(w, device, end, 0)
                w.close()
            w.close()
        else:
            write_device(w, thing, behind, 0)
        w.close()
    w.close()


def text_of(machine):
    w = Writer()
    total = sum(p.n_cpus for p in machine.packages)
    allowed = mask(0, machine.allowed or total)
    cpus, nodes = mask(0, total), mask(0, len(machine.packages))
    w.line('<?xml version="1.0" encoding="UTF-8"?>')
    w.line('<!DOCTYPE topology SYSTEM "hwloc2.dtd">')
    w.line('<topology version="2.0">')
    w.depth = 1
    w.open("Machine", {"os_index": 0, **sets(cpus, nodes), "allowed_cpuset": allowed, "allowed_nodeset": nodes})
    first = 0
    for number, package in enumerate(machine.packages):
        cpus, node = mask(first, package.n_cpus), mask(number, 1)
        w.open("Package", {"os_index": number, **sets(cpus, node)})
        w.open("NUMANode", {"os_index": number, **sets(cpus, node), "local_memory": 1 << 34}, empty=True)
        for cpu in range(first, first + package.n_cpus):
            w.open("Core", {"os_index": cpu, **sets(mask(cpu, 1), node)})
            w.open("PU", {"os_index": cpu, **sets(mask(cpu, 1), node)}, empty=True)
            w.close()
        for bus in package.buses:
            write_bus(w, bus)
        w.close()
        first += package.n_cpus
    for bus in machine.top:
        write_bus(w, bus)
    w.close()
    w.depth = 0
    w.line("</topology>")
    return "\n".join(w.lines) + "\n"


def main():
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    for name, machine in MACHINES.items():
        with open(os.path.join(directory, f"{name}.xml"), "w", encoding="utf-8") as file:
            file.write(text_of(machine))


if __name__ == "__main__":
    main()
