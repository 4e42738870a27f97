/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The machine through hwloc.
 *
 *   1. Load: everything, also what a cgroup forbids (it is to be seen), with I/O devices; without
 *      hwloc's plugins for displays, OpenCL and GPUs, which cost time and are not needed.
 *   2. Walk from the root. Packages, NUMA nodes, bridges, GPUs and NICs become objects; what is
 *      between (caches, cores, groups) only passes its children on. So do bridges with one child,
 *      which say nothing about who is near whom.
 *   3. What stands on a bus is near the CPUs of the object that its bus hangs from.
 *
 * Failures: hwloc that cannot load, or a file that is none, is an error with a text; a machine
 * that shows no PCI bus (containers without sysfs) is a table without devices.
 */
#include <topo.h>

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VENDOR_NVIDIA 0x10de
#define CLASS_DISPLAY 0x03
#define PORT_ACTIVE 4

static struct spri_cpus take_cpus(hwloc_const_bitmap_t set)
{
	struct spri_cpus out = {{0}};

	for (int cpu = set ? hwloc_bitmap_first(set) : -1; cpu >= 0 && cpu < SPRI_CPUS;
	     cpu = hwloc_bitmap_next(set, cpu))
		spri_cpus_add(&out, (unsigned)cpu);
	return out;
}

/* What a device is near to: the object that its bus hangs from. */
static void locate(hwloc_topology_t hwloc, hwloc_obj_t device, struct spri_topo_object *o)
{
	hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(hwloc, device);

	/* A bus at the very top has no locality of its own. */
	if (!near || !near->parent)
		return;
	o->cpus = take_cpus(near->cpuset);
	o->node = near->nodeset ? hwloc_bitmap_first(near->nodeset) : -1;
}

static void set_pci(struct spri_topo_object *o, const struct hwloc_pcidev_attr_s *pci)
{
	snprintf(o->pci, sizeof o->pci, "%04x:%02x:%02x.%x", pci->domain & 0xffff, pci->bus,
		 pci->dev, pci->func & 0xf);
}

static bool is_nic(hwloc_obj_t os)
{
	return os->type == HWLOC_OBJ_OS_DEVICE && os->name &&
	       (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
		os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS);
}

/* Ports as hwloc tells of them: "Port1State", "4" when active. No port told: not known to be down.
 */
static bool all_ports_down(hwloc_obj_t os)
{
	bool told = false;

	for (unsigned i = 0; i < os->infos_count; i++) {
		const char *name = os->infos[i].name;
		size_t n = strlen(name);

		if (strncmp(name, "Port", 4) || n < 9 || strcmp(name + n - 5, "State"))
			continue;
		told = true;
		if (atoi(os->infos[i].value) == PORT_ACTIVE)
			return false;
	}
	return told;
}

static void add_interface(struct spri_topo_object *o, const char *name)
{
	size_t used = strlen(o->interfaces);

	if (used + strlen(name) + 2 <= sizeof o->interfaces)
		snprintf(o->interfaces + used, sizeof o->interfaces - used, "%s%s", used ? "," : "",
			 name);
	if (!o->name[0])
		snprintf(o->name, sizeof o->name, "%s", name);
}

/* One name of a NIC: its RDMA device or an interface. */
static void name_nic(struct spri_topo_object *o, hwloc_obj_t os)
{
	if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK) {
		add_interface(o, os->name);
	} else if (!o->rdma) {
		snprintf(o->name, sizeof o->name, "%s", os->name);
		o->rdma = true;
		o->down = all_ports_down(os);
	}
}

/* A PCI device, if it is a GPU or has names of a NIC. */
static void add_device(struct spri_topo *topo, hwloc_topology_t hwloc, hwloc_obj_t device,
		       int parent)
{
	const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
	bool gpu = pci->vendor_id == VENDOR_NVIDIA && pci->class_id >> 8 == CLASS_DISPLAY;
	struct spri_topo_object *o = NULL;
	hwloc_obj_t child = NULL;

	if (gpu)
		o = spri_topo_add(topo, SPRI_TOPO_GPU, parent);
	while (!gpu && (child = hwloc_get_next_child(hwloc, device, child)) != NULL) {
		if (!is_nic(child))
			continue;
		if (!o)
			o = spri_topo_add(topo, SPRI_TOPO_NIC, parent);
		if (!o)
			return;
		name_nic(o, child);
	}
	if (!o)
		return;
	set_pci(o, pci);
	locate(hwloc, device, o);
	if (gpu) {
		const char *model = hwloc_obj_get_info_by_name(device, "PCIDevice");

		snprintf(o->name, sizeof o->name, "%s", model ? model : "GPU");
	}
}

static struct spri_topo_object *add_bridge(struct spri_topo *topo, hwloc_obj_t bridge, int parent)
{
	const struct hwloc_bridge_attr_s *attr = &bridge->attr->bridge;
	bool host = attr->upstream_type == HWLOC_OBJ_BRIDGE_HOST;
	struct spri_topo_object *o;

	if (!host && bridge->io_arity < 2)
		return NULL;
	o = spri_topo_add(topo, SPRI_TOPO_BRIDGE, parent);
	if (!o)
		return NULL;
	if (host)
		snprintf(o->name, sizeof o->name, "host bridge %04x:[%02x-%02x]",
			 attr->downstream.pci.domain & 0xffff, attr->downstream.pci.secondary_bus,
			 attr->downstream.pci.subordinate_bus);
	else
		set_pci(o, &attr->upstream.pci);
	if (!host)
		snprintf(o->name, sizeof o->name, "PCI switch %s", o->pci);
	return o;
}

/* What the object itself becomes; NULL: nothing, its children stand for it. */
static struct spri_topo_object *add_object(struct spri_topo *topo, hwloc_topology_t hwloc,
					   hwloc_obj_t obj, int parent)
{
	struct spri_topo_object *o = NULL;

	if (obj->type == HWLOC_OBJ_PACKAGE || obj->type == HWLOC_OBJ_NUMANODE) {
		bool node = obj->type == HWLOC_OBJ_NUMANODE;

		o = spri_topo_add(topo, node ? SPRI_TOPO_NODE : SPRI_TOPO_PACKAGE, parent);
		if (!o)
			return NULL;
		o->number = (int)obj->os_index;
		o->cpus = take_cpus(obj->cpuset);
		o->allowed = !node || hwloc_bitmap_isset(hwloc_topology_get_allowed_nodeset(hwloc),
							 obj->os_index);
		snprintf(o->name, sizeof o->name, "%s %d", node ? "NUMA node" : "package",
			 o->number);
		topo->n_nodes += node;
	} else if (obj->type == HWLOC_OBJ_BRIDGE) {
		o = add_bridge(topo, obj, parent);
	} else if (is_nic(obj)) { /* not on a PCI bus */
		o = spri_topo_add(topo, SPRI_TOPO_NIC, parent);
		if (!o)
			return NULL;
		name_nic(o, obj);
		locate(hwloc, obj, o);
	}
	return o;
}

static void walk(struct spri_topo *topo, hwloc_topology_t hwloc, hwloc_obj_t obj, int parent)
{
	hwloc_obj_t child = NULL;
	struct spri_topo_object *o;
	int at = parent;

	if (obj->type == HWLOC_OBJ_PCI_DEVICE) {
		add_device(topo, hwloc, obj, parent);
		return;
	}
	o = add_object(topo, hwloc, obj, parent);
	if (o)
		at = (int)(o - topo->objects);
	/* NUMA nodes first: they are small, and what else is in a package is near them. */
	for (child = obj->memory_first_child; child; child = child->next_sibling)
		walk(topo, hwloc, child, at);
	for (child = obj->first_child; child; child = child->next_sibling)
		walk(topo, hwloc, child, at);
	for (child = obj->io_first_child; child; child = child->next_sibling)
		walk(topo, hwloc, child, at);
	/* A bus with nothing of interest. */
	if (o && o->kind == SPRI_TOPO_BRIDGE && (int)topo->n == at + 1)
		topo->n--;
}

/* GPUs of a file are numbered as a driver would: by their place on the bus. */
static void number_gpus(struct spri_topo *topo)
{
	for (int i = -1; (i = spri_topo_next(topo, SPRI_TOPO_GPU, i + 1)) >= 0;) {
		topo->objects[i].number = 0;
		for (int k = -1; (k = spri_topo_next(topo, SPRI_TOPO_GPU, k + 1)) >= 0;)
			topo->objects[i].number +=
				strcmp(topo->objects[k].pci, topo->objects[i].pci) < 0;
	}
}

/* Returns 0 or a negative errno. */
static int load(hwloc_topology_t hwloc, const char *xml)
{
	/* "pci" stands for libpciaccess, which keeps its names of devices for ever; sysfs does. */
	static const char *const not_needed[] = {"opencl",    "cuda", "nvml", "rsmi",
						 "levelzero", "gl",   "pci"};

	if (xml && hwloc_topology_set_xml(hwloc, xml) < 0)
		return errno ? -errno : -EINVAL;
	for (size_t i = 0; i < spri_countof(not_needed) && !xml; i++)
		(void)hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
						    not_needed[i]);
	if (hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) < 0 ||
	    hwloc_topology_set_icache_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_NONE) < 0 ||
	    hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) < 0 ||
	    hwloc_topology_load(hwloc) < 0)
		return errno ? -errno : -EINVAL;
	return 0;
}

int spri_topo_read(const char *xml, struct spri_topo *out, struct spri_text *text)
{
	hwloc_topology_t hwloc;
	int r;

	if (hwloc_topology_init(&hwloc) < 0)
		return spri_trace(-ENOMEM);
	memset(out, 0, sizeof *out);
	if (xml && access(xml, R_OK) < 0)
		r = -errno;
	else
		r = load(hwloc, xml);
	if (r < 0) {
		spri_text_set(text, "%s%shwloc cannot read it: %s", xml ? xml : "this machine",
			      ": ", spr_strerror(r));
		r = xml ? SPR_EARGUMENT : r;
		goto destroy;
	}
	out->cpus = take_cpus(hwloc_topology_get_topology_cpuset(hwloc));
	out->usable = take_cpus(hwloc_topology_get_allowed_cpuset(hwloc));
	walk(out, hwloc, hwloc_get_root_obj(hwloc), -1);
	if (xml)
		number_gpus(out);
	snprintf(out->source, sizeof out->source, "%s, by hwloc", xml ? "a file" : "this machine");
destroy:
	hwloc_topology_destroy(hwloc);
	return spri_trace(r);
}
