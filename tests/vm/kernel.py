# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Sparring authors
"""The guest's kernel: Debian's own, by apt, made ready once and kept in a cache directory.

    directory = kernel.ready()      what is there: vmlinux, initramfs, modules/, release

Path: find the newest kernel package, download it with its headers and source; unpack the ELF kernel (it boots without
unpacking itself, which takes seconds under emulation) and the few modules that the guest needs; build modules against
the headers: siw, which Debian leaves out, tcgfix (see tcgfix.c), rxe once more, with dma-bufs (see rxe_dmabuf.c), and
one that is only there (nvidia_peermem.c); write the first file system.
Failures: Unavailable, when programs or packages are missing that this machine could have (the tests are skipped then,
with that text); RuntimeError, with the end of the log, when they are there and something does not work. What was begun
is taken away, and the next call begins anew. Several callers at once wait for the first.
"""
import fcntl
import glob
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

VERSION = "2"  # to be raised when what is made here changes: older caches are made anew then
HERE = os.path.dirname(os.path.realpath(__file__))

# Program to look for: Debian package. What the driver and this file need to be there.
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "zstd": "zstd", "xz": "xz-utils",
            "make": "make", "gcc-12": "gcc-12", "strip": "binutils", "rdma": "iproute2", "setpriv": "util-linux",
            "apt-get": "apt", "dpkg-deb": "dpkg"}

# The modules of the first file system, then those that the guest loads; with all that they depend on.
EARLY = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
LATER = ("rdma_rxe", "rdma_ucm", "ib_uverbs", "iw_cm", "veth", "dummy", "bridge", "sch_tbf", "sch_netem", "sch_ingress",
         "cls_u32", "cls_matchall", "act_gact", "act_mirred", "crc32_generic", "crc32c_generic", "libcrc32c")


class Unavailable(Exception):
    """The guest machine cannot be had here, and why."""


def say(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


def cache_directory():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("SPARRING_VM_CACHE") or os.path.join(home, "sparring-vm")


def need_programs():
    """Raises Unavailable when a program is missing, with the packages to install."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = {package for program, package in PROGRAMS.items() if not shutil.which(program, path=path)}
    if not glob.glob("/usr/lib/*/libibverbs/librxe-rdmav*.so"):
        missing.add("ibverbs-providers")
    if missing:
        raise Unavailable("missing packages: " + " ".join(sorted(missing)))


class Log:
    """Runs programs; keeps what they print for the message of a failure."""

    def __init__(self, path):
        self.path = path

    def run(self, *argv, **options):
        with open(self.path, "ab") as log:
            log.write(f"+ {' '.join(argv)}\n".encode())
            log.flush()
            options.setdefault("stdout", log)
            return subprocess.run(argv, stdin=subprocess.DEVNULL, stderr=log, **options).returncode == 0

    def must(self, *argv, **options):
        if not self.run(*argv, **options):
            raise RuntimeError(f"{argv[0]} failed:\n{self.tail()}")

    def tail(self):
        with open(self.path, errors="replace") as log:
            return "".join(f"  | {line}" for line in log.readlines()[-20:])


# ---- packages ----


def apt_cache(*argv):
    done = subprocess.run(["apt-cache", *argv], capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def newest_kernel():
    """The release of the newest kernel package: "6.12.117+deb12-amd64"."""
    pattern = re.compile(r"linux-image-(\d+\.\d+\.\d+(?:\+deb\d+)?(?:-\d+)?-amd64)$")
    found = [match[1] for match in map(pattern.match, apt_cache("pkgnames", "linux-image-")) if match]
    return max(found, key=lambda release: [int(n) for n in re.findall(r"\d+", release)], default=None)


def dependencies(package):
    lines = apt_cache("depends", package)
    return [line.split(": ")[1] for line in lines if re.match(r" *Depends: linux-(headers|kbuild)", line)]


def download(log, directory, *packages):
    """Fetches packages by name; tries again with fresh lists, where that is allowed."""
    for attempt in range(3):
        if attempt and os.geteuid() == 0:
            log.run("apt-get", "-qq", "update")
        if log.run("apt-get", "-q", "download", *packages, cwd=directory):
            return
    raise Unavailable(f"apt-get download {' '.join(packages)} failed:\n{log.tail()}")


def find_release(log):
    release = os.environ.get("SPARRING_VM_KERNEL") or newest_kernel()
    if not release and os.geteuid() == 0:
        log.run("apt-get", "-qq", "update")
        release = newest_kernel()
    if not release:
        raise Unavailable("apt knows no kernel package")
    return release


def package(work, name):
    found = glob.glob(f"{work}/{name}_*.deb")
    if len(found) != 1:
        raise RuntimeError(f"expected one package {name}, got {found}")
    return found[0]


# ---- kernel and modules ----


def read_image(deb, release):
    """(vmlinuz, config, {module name: its bytes, unpacked when asked for}) of a kernel package."""
    boot, modules = {}, {}
    unpack = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=unpack.stdout, mode="r|") as archive:
        for member in archive:
            name = os.path.basename(member.name)
            if not member.isfile():
                continue
            if "/boot/" in member.name:
                boot[name] = archive.extractfile(member).read()
            elif ".ko" in name:
                modules[name.split(".ko")[0].replace("-", "_")] = (name, archive.extractfile(member).read())
    unpack.stdout.close()
    if unpack.wait() or f"vmlinuz-{release}" not in boot or not modules:
        raise RuntimeError(f"{deb} is no kernel package of {release}")
    return boot[f"vmlinuz-{release}"], boot[f"config-{release}"], modules


def unpacked(name, data):
    if name.endswith(".xz"):
        return lzma.decompress(data)
    if name.endswith(".zst"):
        return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout
    return data


def closure(names, modules):
    """[(name, bytes)] of the modules and all that they depend on, in the order of loading; built-in ones left out."""
    done, order = set(), []

    def add(name):
        name = name.replace("-", "_")
        if name in done or name not in modules:
            return
        done.add(name)
        data = unpacked(*modules[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in filter(None, depends[1].decode().split(",") if depends else []):
            add(other)
        order.append((name, data))

    for name in names:
        add(name)
    return order


def elf_kernel(vmlinuz):
    """The ELF kernel in the compressed one."""
    for magic, command in ((b"\x28\xb5\x2f\xfd", ["zstd", "-dcq"]), (b"\xfd7zXZ\0", ["xz", "-dc", "--single-stream"]),
                           (b"\x1f\x8b\x08", ["gzip", "-dcq"])):
        at = vmlinuz.find(magic)
        while at >= 0:
            out = subprocess.run(command, input=vmlinuz[at:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            if out.startswith(b"\x7fELF"):
                return out
            at = vmlinuz.find(magic, at + 1)
    raise RuntimeError("no ELF kernel was found in vmlinuz")


def save(directory, name, data):
    path = os.path.join(directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return path


# Where rxe_dmabuf.c is tied into Debian's rxe: file, text that is there once, what comes before it, what behind.
RXE_TIES = (
    ("rxe_verbs.h", '#include "rxe_pool.h"\n', "#include <linux/dma-buf.h>\n#include <linux/iosys-map.h>\n", ""),
    ("rxe_verbs.h", "\tstruct ib_umem\t\t*umem;\n\n\tu32\t\t\tlkey;\n", "",
     "\tstruct dma_buf\t\t*dmabuf;\n\tstruct iosys_map\tdmabuf_map;\n"),
    ("rxe_loc.h", "int rxe_mr_init_fast(", "struct ib_mr *rxe_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset, u64 length, "
     "u64 iova,\n\t\t\t\t     int fd, int access, struct uverbs_attr_bundle *attrs);\n", ""),
    ("rxe_verbs.c", "\t.reg_user_mr = rxe_reg_user_mr,\n", "", "\t.reg_user_mr_dmabuf = rxe_reg_user_mr_dmabuf,\n"),
    ("rxe_mr.c", "\tib_umem_release(mr->umem);\n\n\tif (mr->ibmr.type", "\trxe_mr_end_dmabuf(mr);\n", ""),
    ("rxe_mr.c", '#include "rxe_loc.h"\n', "", "\nstatic void rxe_mr_end_dmabuf(struct rxe_mr *mr);\n"),
    ("rxe.c", 'MODULE_LICENSE("Dual BSD/GPL");\n', "", "MODULE_IMPORT_NS(DMA_BUF);\n"),
)


def tie_rxe(directory):
    """Adds rxe_dmabuf.c to the source of rxe."""
    for name, text, before, behind in RXE_TIES:
        source = read(f"{directory}/{name}")
        if source.count(text) != 1:
            raise RuntimeError(f"rxe's {name} is another than expected: {text!r}")
        save(directory, name, source.replace(text, before + text + behind).encode())
    save(directory, "rxe_mr.c", (read(f"{directory}/rxe_mr.c") + read(f"{HERE}/rxe_dmabuf.c")).encode())


def build_modules(log, work, release, out):
    """siw, tcgfix, rxe with dma-bufs and nvidia_peermem, against the headers, into `out`."""
    source = f"linux-source-{'.'.join(release.split('.')[:2])}"
    headers = [f"linux-headers-{release}", *dependencies(f"linux-headers-{release}")]
    download(log, work, source, *headers)
    for name in headers:
        log.must("dpkg-deb", "-x", package(work, name), f"{work}/x")
    tree = f"{work}/x/usr/src/linux-headers-{release}"
    # The package is made for one place; here it lies in another.
    with open(f"{tree}/Makefile") as file:
        text = file.read().replace("/usr/src/linux", f"{work}/x/usr/src/linux")
    save(tree, "Makefile", text.encode())
    os.mkdir(f"{work}/m")
    log.must("dpkg-deb", "-x", package(work, source), f"{work}/x")
    log.must("tar", "-C", f"{work}/m", "-xf", f"{work}/x/usr/src/{source}.tar.xz", "--strip-components=4",
             f"{source}/drivers/infiniband/sw/siw", f"{source}/drivers/infiniband/sw/rxe")
    tie_rxe(f"{work}/m/rxe")
    for name in ("tcgfix", "nvidia_peermem"):
        shutil.copy(f"{HERE}/{name}.c", f"{work}/m")
    save(f"{work}/m", "Kbuild", b"obj-m := siw/ rxe/ tcgfix.o nvidia_peermem.o\n")
    log.must("make", "-s", "-C", tree, f"M={work}/m", "CONFIG_RDMA_SIW=m", "CONFIG_RDMA_RXE=m",
             "CONFIG_DEBUG_INFO_BTF_MODULES=", "CONFIG_DEBUG_INFO_BTF=", f"-j{os.cpu_count()}", "modules")
    for name in ("siw/siw.ko", "tcgfix.ko", "nvidia_peermem.ko"):
        shutil.copy(f"{work}/m/{name}", out)
    # Beside the one that is Debian's; init loads one of them.
    shutil.copy(f"{work}/m/rxe/rdma_rxe.ko", f"{out}/rdma_rxe_dmabuf.ko")


# ---- the first file system ----


def cpio(entries):
    """An archive in the "newc" format, as the kernel wants it: [(path, mode, bytes)]."""
    out = bytearray()
    for number, (path, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        for piece in (b"070701" + b"".join(b"%08x" % field for field in fields) + name, data):
            out += piece + bytes(-len(piece) % 4)
    return bytes(out)


def first_file_system(early):
    with open(f"{HERE}/stage1", "rb") as file:
        stage1 = file.read()
    with open(shutil.which("busybox"), "rb") as file:
        busybox = file.read()
    entries = [(name, 0o40755, b"") for name in ("bin", "dev", "proc", "sys", "mod", "host", "root", "ovl")]
    entries += [("init", 0o100755, stage1), ("bin/busybox", 0o100755, busybox)]
    entries += [(f"bin/{name}", 0o120777, b"busybox") for name in
                ("sh", "mount", "mkdir", "insmod", "cp", "tar", "head", "switch_root", "poweroff", "sleep")]
    entries += [(f"mod/{number:02}_{name}.ko", 0o100644, data) for number, (name, data) in enumerate(early)]
    return cpio(entries)


# ---- the cache ----


def make(log, work, out):
    release = find_release(log)
    say(f"first use: fetching linux-image-{release} and building its modules (1-3 minutes, 280 MB, once)")
    download(log, work, f"linux-image-{release}")
    vmlinuz, config, modules = read_image(package(work, f"linux-image-{release}"), release)
    save(out, "vmlinux", elf_kernel(vmlinuz))
    save(out, "config", config)
    early = closure(EARLY, modules)
    tree = f"{out}/lib/modules/{release}"
    for name, data in closure(EARLY + LATER, modules):
        save(tree, f"kernel/{name}.ko", data)
    build_modules(log, work, release, f"{tree}/kernel")
    for path in glob.glob(f"{tree}/kernel/*.ko"):  # no signature to check, less to read
        log.must("strip", "-g", path)
    log.must("busybox", "depmod", "-b", out, release)
    early = [(name, open(f"{tree}/kernel/{name}.ko", "rb").read()) for name, _ in early]
    save(out, "initramfs", first_file_system(early))
    save(out, "release", release.encode())
    save(out, "version", VERSION.encode())


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


def ready():
    """The directory with what the driver boots. Makes it when it is not there."""
    need_programs()
    cache = cache_directory()
    out = f"{cache}/kernel"
    os.makedirs(cache, exist_ok=True)
    with open(f"{cache}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if read(f"{out}/version") == VERSION:
            return out
        for left in glob.glob(f"{cache}/tmp*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            os.mkdir(f"{work}/kernel")
            make(Log(f"{cache}/log"), work, f"{work}/kernel")
            shutil.rmtree(out, ignore_errors=True)
            os.rename(f"{work}/kernel", out)
    return out
