/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Decides where a rank belongs; see seat.h.
 *
 *   1. SPR_DEVICE is read: a GPU, a NIC, or both.
 *   2. GPU: the one named, else the local rank's in the driver's order, round when there are fewer.
 *   3. NIC, of those with an RDMA device when there are any: the one named, else the nearest to the
 *      GPU: the deeper the PCI bridge that both are below the nearer, then the same CPUs, then any.
 *      Without a GPU: one that is near the CPUs of the process. Of several as near, the one that
 *      the ranks before this one take least: their turns are played through in order.
 *   4. Node: that of the NIC, else of the GPU, if there is more than one and it is allowed.
 *   5. CPUs: those near the NIC (or GPU) that are allowed, or what SPR_BIND says.
 *
 * Failures: a value that cannot be is SPR_EENVIRONMENT; what is not known (no PCI bus in sight, no
 * hwloc) leaves the decision to the system, with a sentence that says so.
 */
#include <seat.h>

#include <stdio.h>
#include <string.h>

#define NEAR_NOTHING 0
#define NEAR_CPUS 1
#define NEAR_BRIDGE 2 /* and the depth of the bridge */

struct decision {
	const struct spri_topo *topo;
	const struct spri_seat_request *request;
	struct spri_seat *out;
	int gpus[SPRI_TOPO_OBJECTS]; /* usable ones by number */
	unsigned n_gpus;
	int nics[SPRI_TOPO_OBJECTS]; /* those to choose from */
	unsigned n_nics;
	int named_gpu;	    /* by SPR_DEVICE; -1 */
	char named_nic[64]; /* by SPR_DEVICE; "" */
	bool nic_given;	    /* SPR_DEVICE decided on the NIC */
};

static const struct spri_topo_object *object(const struct decision *d, int i)
{
	return &d->topo->objects[i];
}

static const char *name_of(const struct decision *d, int i, char out[64])
{
	spri_topo_name(object(d, i), out, 64);
	return out;
}

/* ---- SPR_DEVICE ---- */

/* Is `name`, n bytes long, one of a comma-separated list? What follows a colon in the list (the
 * port of SPR_RDMA_DEVICE) does not count. */
static bool listed(const char *list, const char *name, size_t n)
{
	while (list) {
		size_t item = strcspn(list, ","), word = strcspn(list, ",:");

		if (word == n && !memcmp(list, name, n))
			return true;
		list = list[item] ? list + item + 1 : NULL;
	}
	return false;
}

static bool nic_has_name(const struct spri_topo_object *o, const char *name, size_t n)
{
	return o->kind == SPRI_TOPO_NIC &&
	       (listed(o->name, name, n) || listed(o->interfaces, name, n));
}

/* The GPU of an item: its number, or its PCI address with or without the domain 0000. -1: none. */
static int find_gpu(const struct decision *d, const char *item, size_t n)
{
	for (unsigned i = 0; i < d->n_gpus; i++) {
		const struct spri_topo_object *o = object(d, d->gpus[i]);
		const char *pci = o->pci;
		char number[12];

		snprintf(number, sizeof number, "%d", o->number);
		if ((strlen(number) == n && !memcmp(number, item, n)) ||
		    (pci[0] && strlen(pci) == n && !strncasecmp(pci, item, n)) ||
		    (!strncmp(pci, "0000:", 5) && strlen(pci) == n + 5 &&
		     !strncasecmp(pci + 5, item, n)))
			return d->gpus[i];
	}
	return -1;
}

/* Appends a name to a list, if there is room. */
static void append(char *out, size_t bytes, const char *separator, const char *name)
{
	size_t used = strlen(out);

	if (used + strlen(name) + 3 < bytes)
		snprintf(out + used, bytes - used, "%s%s", used ? separator : "", name);
}

static int refuse_device(const struct decision *d, const char *item, size_t n,
			 struct spri_text *text)
{
	char gpus[180] = "", nics[100] = "";

	for (unsigned i = 0; i < d->n_gpus; i++) {
		char name[32];

		snprintf(name, sizeof name, "%d (%s)", object(d, d->gpus[i])->number,
			 object(d, d->gpus[i])->pci);
		append(gpus, sizeof gpus, ", ", name);
	}
	for (int i = -1; (i = spri_topo_next(d->topo, SPRI_TOPO_NIC, i + 1)) >= 0;)
		append(nics, sizeof nics, ", ", object(d, i)->name);
	spri_text_set(text, "SPR_DEVICE is '%s': '%.*s' is neither a GPU (%s) nor a NIC (%s); %s",
		      d->request->device, (int)n, item, gpus[0] ? gpus : "there is none",
		      nics[0] ? nics : "there is none", d->topo->source);
	return spri_trace(SPR_EENVIRONMENT);
}

static int read_device(struct decision *d, struct spri_text *text)
{
	const char *s = d->request->device;

	while (s) {
		size_t n = strcspn(s, ",");
		int gpu = find_gpu(d, s, n), nic = -1;

		if (gpu < 0)
			for (nic = 0; nic < (int)d->topo->n; nic++)
				if (nic_has_name(object(d, nic), s, n))
					break;
		if (gpu >= 0 && d->named_gpu < 0) {
			d->named_gpu = gpu;
		} else if (gpu < 0 && nic < (int)d->topo->n && !d->named_nic[0]) {
			snprintf(d->named_nic, sizeof d->named_nic, "%.*s", (int)n, s);
		} else if (gpu >= 0 || nic < (int)d->topo->n) {
			spri_text_set(text, "SPR_DEVICE is '%s', names more than one %s",
				      d->request->device, gpu >= 0 ? "GPU" : "NIC");
			return spri_trace(SPR_EENVIRONMENT);
		} else {
			return refuse_device(d, s, n, text);
		}
		s = s[n] ? s + n + 1 : NULL;
	}
	return 0;
}

/* ---- GPU ---- */

static void list_gpus(struct decision *d)
{
	for (int i = -1; (i = spri_topo_next(d->topo, SPRI_TOPO_GPU, i + 1)) >= 0;) {
		unsigned at = d->n_gpus;

		if (object(d, i)->number < 0)
			continue;
		for (; at > 0 && object(d, d->gpus[at - 1])->number > object(d, i)->number; at--)
			d->gpus[at] = d->gpus[at - 1];
		d->gpus[at] = i;
		d->n_gpus++;
	}
}

/* The GPU of a local rank, as long as nothing else is said. */
static int gpu_of(const struct decision *d, uint32_t local_rank)
{
	return d->n_gpus ? d->gpus[local_rank % d->n_gpus] : -1;
}

static void choose_gpu(struct decision *d)
{
	const struct spri_seat_request *q = d->request;
	struct spri_seat *out = d->out;
	int seen = spri_topo_next(d->topo, SPRI_TOPO_GPU, 0);

	out->gpu = d->named_gpu >= 0 ? d->named_gpu : gpu_of(d, q->local_rank);
	if (d->named_gpu >= 0)
		snprintf(out->gpu_why, sizeof out->gpu_why, "SPR_DEVICE names it");
	else if (out->gpu < 0 && seen >= 0)
		snprintf(out->gpu_why, sizeof out->gpu_why,
			 "there is one at %s, but this process cannot use it",
			 object(d, seen)->pci);
	else if (out->gpu < 0)
		snprintf(out->gpu_why, sizeof out->gpu_why, "there is none");
	else if (q->local_size > d->n_gpus && d->n_gpus == 1)
		snprintf(out->gpu_why, sizeof out->gpu_why, "the only one, for all %u local ranks",
			 q->local_size);
	else if (q->local_size > d->n_gpus)
		snprintf(out->gpu_why, sizeof out->gpu_why, "in turn: %u local ranks share %u GPUs",
			 q->local_size, d->n_gpus);
	else
		snprintf(out->gpu_why, sizeof out->gpu_why, "one for each local rank; this is %u",
			 q->local_rank);
}

/* ---- NIC ---- */

/* Do SPR_RDMA_DEVICE or SPR_TCP_IF allow it? Address blocks are not known here. */
static bool allowed_nic(const struct decision *d, const struct spri_topo_object *o)
{
	const char *list = o->rdma ? d->request->rdma_devices : d->request->interfaces;
	bool without = list && *list == '^', named;

	if (!list || strchr(list, '/'))
		return true;
	named = listed(list + without, o->name, strlen(o->name));
	return named != without;
}

/* RDMA devices with an active port, or else network interfaces. */
static void list_nics(struct decision *d)
{
	for (int pass = 0; pass < 2 && d->n_nics == 0; pass++) {
		for (int i = -1; (i = spri_topo_next(d->topo, SPRI_TOPO_NIC, i + 1)) >= 0;) {
			const struct spri_topo_object *o = object(d, i);

			if (o->rdma == (pass == 0) && !o->down && allowed_nic(d, o))
				d->nics[d->n_nics++] = i;
		}
	}
}

/* How near a NIC is to a GPU, or without one to the CPUs of the process. */
static unsigned nearness(const struct decision *d, int gpu, int nic)
{
	const struct spri_cpus *to = gpu >= 0 ? &object(d, gpu)->cpus : &d->request->allowed;
	int bridge = gpu >= 0 ? spri_topo_bridge(d->topo, gpu, nic) : -1;

	if (bridge >= 0)
		return NEAR_BRIDGE + object(d, bridge)->depth;
	return spri_cpus_meet(to, &object(d, nic)->cpus) ? NEAR_CPUS : NEAR_NOTHING;
}

/* How near the nearest is, and how many are that near. */
static unsigned nearest(const struct decision *d, int gpu, unsigned *n_near)
{
	unsigned best = 0;

	*n_near = 0;
	for (unsigned i = 0; i < d->n_nics; i++) {
		unsigned near = nearness(d, gpu, d->nics[i]);

		if (near > best)
			*n_near = 0;
		best = near > best ? near : best;
		*n_near += near == best;
	}
	return best;
}

/*
 * Who takes turns before this rank: the GPUs of the ranks before it. A launcher that shows each
 * rank a GPU of its own (CUDA_VISIBLE_DEVICES) hides the others'; then all GPUs that stand before
 * ours in the machine.
 */
static bool hidden_gpus(const struct decision *d)
{
	unsigned n = 0;

	for (int i = -1; (i = spri_topo_next(d->topo, SPRI_TOPO_GPU, i + 1)) >= 0;)
		n++;
	return n > d->n_gpus && d->n_gpus > 0 && d->request->local_size > d->n_gpus;
}

/* The NIC of one more rank with this GPU: of the nearest the one taken least. */
static unsigned take_turn(const struct decision *d, int gpu, unsigned *taken)
{
	unsigned n_near, best = nearest(d, gpu, &n_near), chosen = UINT32_MAX;

	for (unsigned i = 0; i < d->n_nics; i++)
		if (nearness(d, gpu, d->nics[i]) == best &&
		    (chosen == UINT32_MAX || taken[i] < taken[chosen]))
			chosen = i;
	taken[chosen]++;
	return chosen;
}

static int play_turns(const struct decision *d)
{
	unsigned taken[SPRI_TOPO_OBJECTS] = {0};

	if (hidden_gpus(d)) {
		for (int i = -1;
		     (i = spri_topo_next(d->topo, SPRI_TOPO_GPU, i + 1)) >= 0 && i < d->out->gpu;)
			(void)take_turn(d, i, taken);
	} else {
		for (uint32_t rank = 0; rank < d->request->local_rank; rank++)
			(void)take_turn(d, gpu_of(d, rank), taken);
	}
	return d->nics[take_turn(d, d->out->gpu, taken)];
}

/* The sentence for the nearest NIC. */
static void say_nearest(const struct decision *d)
{
	struct spri_seat *out = d->out;
	unsigned n_near, near = nearest(d, out->gpu, &n_near);
	char gpu[64] = "the CPUs of this process", where[96] = "", turns[64] = "";

	if (out->gpu >= 0)
		name_of(d, out->gpu, gpu);
	if (near >= NEAR_BRIDGE)
		snprintf(where, sizeof where, ": both below %s",
			 object(d, spri_topo_bridge(d->topo, out->gpu, out->nic))->name);
	else if (near == NEAR_CPUS && out->gpu >= 0 && object(d, out->gpu)->node >= 0)
		snprintf(where, sizeof where, ": on its NUMA node %d", object(d, out->gpu)->node);
	else if (near == NEAR_CPUS)
		snprintf(where, sizeof where, ": on a NUMA node of theirs");
	if (n_near > 1)
		snprintf(turns, sizeof turns, "; %u are as %s%s", n_near,
			 near == NEAR_NOTHING ? "far" : "near",
			 d->request->local_size > 1 ? ", ranks take turns" : "");
	if (d->n_nics == 1 && near == NEAR_NOTHING)
		snprintf(out->nic_why, sizeof out->nic_why, "the only one");
	else
		snprintf(out->nic_why, sizeof out->nic_why, "%s %s%s%s",
			 near == NEAR_NOTHING ? "none is near" : "nearest to", gpu, where, turns);
}

static void say_no_nic(const struct decision *d)
{
	struct spri_seat *out = d->out;
	int seen = spri_topo_next(d->topo, SPRI_TOPO_NIC, 0);

	if (seen < 0)
		snprintf(out->nic_why, sizeof out->nic_why,
			 "no NIC is seen; the transport's own choice");
	else if (object(d, seen)->rdma && object(d, seen)->down && !d->request->rdma_devices)
		snprintf(out->nic_why, sizeof out->nic_why, "no port of any RDMA device is active");
	else
		snprintf(out->nic_why, sizeof out->nic_why,
			 "SPR_RDMA_DEVICE or SPR_TCP_IF leaves none");
}

/* The NIC that SPR_DEVICE names, if it may be used; else -1 and why not. */
static int named_nic(const struct decision *d, char *why, size_t bytes)
{
	const char *name = d->named_nic;

	why[0] = '\0';
	for (int i = -1; name[0] && (i = spri_topo_next(d->topo, SPRI_TOPO_NIC, i + 1)) >= 0;) {
		const struct spri_topo_object *o = object(d, i);

		if (!nic_has_name(o, name, strlen(name)))
			continue;
		if (!o->down && allowed_nic(d, o))
			return i;
		snprintf(why, bytes, "; SPR_DEVICE names %s, but %s", name,
			 o->down   ? "its port is down"
			 : o->rdma ? "SPR_RDMA_DEVICE does not"
				   : "SPR_TCP_IF does not");
	}
	return -1;
}

static void choose_nic(struct decision *d)
{
	struct spri_seat *out = d->out;
	char why[128];
	size_t used;

	out->nic = named_nic(d, why, sizeof why);
	d->nic_given = out->nic >= 0;
	if (d->nic_given) {
		snprintf(out->nic_why, sizeof out->nic_why, "SPR_DEVICE names it");
	} else if (d->n_nics == 0) {
		say_no_nic(d);
	} else {
		out->nic = play_turns(d);
		say_nearest(d);
	}
	used = strlen(out->nic_why);
	snprintf(out->nic_why + used, sizeof out->nic_why - used, "%s", why);
}

/*
 * For the transport: the chosen device first, then by nearness. Nothing to say when SPR_RDMA_DEVICE
 * says it, or when one rank has several that are as near: then all of them work for it.
 */
static void order_devices(struct decision *d)
{
	struct spri_seat *out = d->out;
	unsigned n_near, best = nearest(d, out->gpu, &n_near);

	if (out->nic < 0 || !object(d, out->nic)->rdma || d->n_nics < 2 ||
	    d->request->rdma_devices ||
	    (!d->nic_given && n_near == d->n_nics && d->request->local_size == 1))
		return;
	append(out->devices, sizeof out->devices, ",", object(d, out->nic)->name);
	for (unsigned near = best + 1; near-- > 0;)
		for (unsigned i = 0; i < d->n_nics; i++)
			if (d->nics[i] != out->nic && nearness(d, out->gpu, d->nics[i]) == near)
				append(out->devices, sizeof out->devices, ",",
				       object(d, d->nics[i])->name);
}

/* ---- node and CPUs ---- */

/* The device that memory and thread stay near: the NIC, else the GPU, if it is known where it is.
 */
static int anchor(const struct decision *d)
{
	const struct spri_seat *out = d->out;

	if (out->nic >= 0 && object(d, out->nic)->node >= 0)
		return out->nic;
	return out->gpu >= 0 && object(d, out->gpu)->node >= 0 ? out->gpu : -1;
}

static bool node_allowed(const struct decision *d, int number)
{
	for (int i = -1; (i = spri_topo_next(d->topo, SPRI_TOPO_NODE, i + 1)) >= 0;)
		if (object(d, i)->number == number)
			return object(d, i)->allowed;
	return false;
}

static void choose_node(struct decision *d)
{
	struct spri_seat *out = d->out;
	int at = anchor(d), node = at >= 0 ? object(d, at)->node : -1;
	char name[64];

	out->node = -1;
	if (d->topo->n_nodes < 2) {
		snprintf(out->node_why, sizeof out->node_why, "%s",
			 d->topo->n_nodes ? "there is one NUMA node" : "NUMA nodes are not known");
	} else if (node < 0) {
		snprintf(out->node_why, sizeof out->node_why,
			 "not known where the NIC is: the first touch decides");
	} else if (!node_allowed(d, node)) {
		snprintf(out->node_why, sizeof out->node_why,
			 "%s is on node %d, whose memory is not allowed here", name_of(d, at, name),
			 node);
	} else {
		out->node = node;
		snprintf(out->node_why, sizeof out->node_why, "%s is there", name_of(d, at, name));
	}
}

/* What SPR_BIND is: one of the words, or a list in *list. */
enum bind_kind { BIND_AUTO, BIND_NONE, BIND_NODE, BIND_LIST };

static int read_bind(const struct decision *d, enum bind_kind *kind, struct spri_cpus *list,
		     struct spri_text *text)
{
	const char *s = d->request->bind;

	*kind = !s || !strcmp(s, "auto") ? BIND_AUTO
		: !strcmp(s, "none")	 ? BIND_NONE
		: !strcmp(s, "node")	 ? BIND_NODE
					 : BIND_LIST;
	if (*kind != BIND_LIST || spri_cpus_parse(s, list))
		return 0;
	spri_text_set(text,
		      "SPR_BIND is '%s', must be auto, none, node, or CPUs below %d like 0-7,16", s,
		      SPRI_CPUS);
	return spri_trace(SPR_EENVIRONMENT);
}

/* CPUs that were asked for, as far as they are allowed. `what`: what they are, for the sentence. */
static void bind_to(struct decision *d, const struct spri_cpus *cpus, const char *what)
{
	struct spri_seat *out = d->out;
	struct spri_cpus both = spri_cpus_both(cpus, &d->request->allowed);
	char text[SPRI_CPUS_TEXT];

	out->bind = !spri_cpus_empty(&both);
	if (!out->bind) {
		snprintf(out->cpus_why, sizeof out->cpus_why,
			 "not bound: %s (%s), but none of these CPUs is allowed here", what,
			 spri_cpus_text(cpus, text));
		return;
	}
	if (spri_cpus_equal(&both, cpus))
		snprintf(out->cpus_why, sizeof out->cpus_why, "%s", what);
	else
		snprintf(out->cpus_why, sizeof out->cpus_why,
			 "%s (%s), those that are allowed here", what, spri_cpus_text(cpus, text));
	out->cpus = both;
}

static int choose_cpus(struct decision *d, struct spri_text *text)
{
	struct spri_seat *out = d->out;
	struct spri_cpus list;
	enum bind_kind kind;
	char what[96], name[64];
	int at = anchor(d);
	int r = read_bind(d, &kind, &list, text);

	if (r < 0)
		return r;
	out->bind = false;
	out->cpus = d->request->allowed;
	if (kind == BIND_LIST) {
		bind_to(d, &list, "SPR_BIND says so");
	} else if (kind == BIND_NONE) {
		snprintf(out->cpus_why, sizeof out->cpus_why, "not bound: SPR_BIND is none");
	} else if (at < 0) {
		snprintf(out->cpus_why, sizeof out->cpus_why, "not bound: %s",
			 d->topo->n_nodes == 1 ? "there is one NUMA node"
					       : "not known which CPUs are near");
	} else if (kind == BIND_AUTO && spri_cpus_equal(&object(d, at)->cpus, &d->topo->cpus)) {
		snprintf(out->cpus_why, sizeof out->cpus_why, "not bound: all CPUs are near %s",
			 name_of(d, at, name));
	} else {
		snprintf(what, sizeof what, "near %s", name_of(d, at, name));
		bind_to(d, &object(d, at)->cpus, what);
	}
	return 0;
}

int spri_seat_decide(const struct spri_topo *topo, const struct spri_seat_request *request,
		     struct spri_seat *out, struct spri_text *text)
{
	struct decision d = {.topo = topo, .request = request, .out = out, .named_gpu = -1};
	int r;

	assert(request->local_size > 0 && request->local_rank < request->local_size);
	memset(out, 0, sizeof *out);
	list_gpus(&d);
	r = read_device(&d, text);
	if (r < 0)
		return r;
	choose_gpu(&d);
	list_nics(&d);
	choose_nic(&d);
	order_devices(&d);
	choose_node(&d);
	return choose_cpus(&d, text);
}
