/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * This process on this machine; see affinity.h.
 *
 *   1. The machine is read once: hwloc's table, and in it the GPUs that the driver has, by their
 *      PCI address. One that the table lacks (no PCI bus in sight) is added, with no seat.
 *   2. The environment, the launcher's variables, and the CPUs that the calling thread may use are
 *      what decisions start from, each time.
 *   3. Threads are bound by sched_setaffinity, pages by mbind: the kernel's own calls, so that no
 *      topology has to be kept in memory.
 *
 * Failures: what cannot be read is not known; what cannot be bound is logged and left as it is.
 */
#include <affinity.h>
#include <gpu.h>
#include <internal/env.h>
#include <internal/log.h>

#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES 1024 /* that a mask for mbind has bits for */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `machine` until it is known */
static struct spri_topo machine;
static bool known;

static struct spri_topo_object *gpu_at(const char *pci)
{
	for (int i = -1; (i = spri_topo_next(&machine, SPRI_TOPO_GPU, i + 1)) >= 0;)
		if (!strcmp(machine.objects[i].pci, pci))
			return &machine.objects[i];
	return spri_topo_add(&machine, SPRI_TOPO_GPU, -1);
}

/* The driver's GPUs. */
static void number_gpus(void)
{
	struct spri_text why = {""};

	if (spri_gpu_probe(&why) < 0)
		return;
	for (unsigned i = 0; i < spri_gpu_count(); i++) {
		struct spri_topo_object *o;
		struct spri_gpu_info info;

		if (spri_gpu_info(i, &info, &why) < 0)
			continue;
		o = gpu_at(info.pci);
		if (!o)
			return;
		o->number = (int)i;
		snprintf(o->name, sizeof o->name, "%s", info.name);
		snprintf(o->pci, sizeof o->pci, "%s", info.pci);
	}
}

const struct spri_topo *spri_affinity_machine(void)
{
	struct spri_text why = {""};

	pthread_mutex_lock(&lock);
	if (!known) {
		if (spri_topo_read(NULL, &machine, &why) < 0) {
			memset(&machine, 0, sizeof machine);
			snprintf(machine.source, sizeof machine.source, "%.*s",
				 (int)sizeof machine.source - 1, why.s);
		}
		number_gpus();
		known = true;
	}
	pthread_mutex_unlock(&lock);
	return &machine;
}

/* The CPUs of the calling thread; all that are usable, on machines with more than a set has. */
static void read_allowed(struct spri_cpus *out)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) < 0) {
		*out = spri_affinity_machine()->usable;
		return;
	}
	memset(out, 0, sizeof *out);
	for (unsigned cpu = 0; cpu < SPRI_CPUS && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			spri_cpus_add(out, cpu);
}

int spri_affinity_request(struct spri_seat_request *out, const char **from, struct spri_text *text)
{
	int r;

	memset(out, 0, sizeof *out);
	r = spri_env_local(&out->local_rank, &out->local_size, from, text);
	if (r < 0)
		return spri_trace(r);
	read_allowed(&out->allowed);
	out->device = spri_env_get(SPRI_ENV_DEVICE);
	out->bind = spri_env_get(SPRI_ENV_BIND);
	out->rdma_devices = spri_env_get(SPRI_ENV_RDMA_DEVICE);
	out->interfaces = spri_env_get(SPRI_ENV_TCP_IF);
	return 0;
}

int spri_affinity_decide(struct spri_seat *out, struct spri_text *text)
{
	struct spri_seat_request request;
	const char *from;
	int r = spri_affinity_request(&request, &from, text);

	if (r == 0)
		r = spri_seat_decide(spri_affinity_machine(), &request, out, text);
	return spri_trace(r);
}

void spri_affinity_bind(const struct spri_seat *seat)
{
	char text[SPRI_CPUS_TEXT];
	cpu_set_t set;

	if (!seat->bind)
		return;
	CPU_ZERO(&set);
	for (unsigned cpu = 0; cpu < SPRI_CPUS && cpu < CPU_SETSIZE; cpu++)
		if (spri_cpus_has(&seat->cpus, cpu))
			CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) == 0)
		spri_logf(SPR_LOG_INFO, "progress thread on CPUs %s: %s",
			  spri_cpus_text(&seat->cpus, text), seat->cpus_why);
	else
		spri_logf(SPR_LOG_WARN, "progress thread not bound to CPUs %s: %s",
			  spri_cpus_text(&seat->cpus, text), spr_strerror(-errno));
}

void spri_affinity_pages(const struct spri_seat *seat, void *pages, size_t bytes)
{
	unsigned long mask[NODES / (8 * sizeof(unsigned long))] = {0};
	static atomic_bool told;
	const unsigned bits = 8 * sizeof *mask;

	if (seat->node < 0 || seat->node >= NODES || bytes == 0)
		return;
	mask[(unsigned)seat->node / bits] |= 1ul << (unsigned)seat->node % bits;
	if (syscall(SYS_mbind, pages, bytes, MPOL_PREFERRED, mask, (unsigned long)NODES, 0) == 0 ||
	    atomic_exchange(&told, true))
		return;
	spri_logf(SPR_LOG_INFO, "landing slots not bound to NUMA node %d: %s", seat->node,
		  spr_strerror(-errno));
}
