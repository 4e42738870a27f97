/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Where ranks belong, on machines recorded in topologies/make.py: for each of them and 1, 2, 4, 8
 * ranks the GPU, the NIC, the node, the CPUs and words of the reasons; what variables change; what
 * a restricted process gets; what is refused, and how that is said.
 */
#include <check.h>
#include <seat.h>
#include <stdlib.h>
#include <string.h>

static struct spri_topo topo; /* large */

/* Loads a machine; skips in builds without hwloc. */
static void load(const char *machine)
{
	struct spri_text text = {""};
	char path[512];
	int r;

	snprintf(path, sizeof path, "%s/%s.xml", TOPOLOGIES, machine);
	r = spri_topo_read(path, &topo, &text);
	if (r == SPR_EUNSUPPORTED)
		cr_skip("built without hwloc");
	cr_assert_eq(r, 0, "%s: %s", machine, text.s);
}

static struct spri_seat_request request(uint32_t rank, uint32_t size)
{
	return (struct spri_seat_request){
		.local_rank = rank, .local_size = size, .allowed = topo.usable};
}

static struct spri_seat decide(const struct spri_seat_request *q)
{
	struct spri_text text = {""};
	struct spri_seat seat;

	cr_assert_eq(spri_seat_decide(&topo, q, &seat, &text), 0, "%s", text.s);
	return seat;
}

static const char *nic_name(const struct spri_seat *seat)
{
	return seat->nic < 0 ? "" : topo.objects[seat->nic].name;
}

static int gpu_number(const struct spri_seat *seat)
{
	return seat->gpu < 0 ? -1 : topo.objects[seat->gpu].number;
}

static void expect_why(const char *why, const char *words)
{
	cr_assert_not_null(strstr(why, words), "expected '%s' in: %s", words, why);
}

static struct spri_cpus cpus(const char *list)
{
	struct spri_cpus out;

	cr_assert(spri_cpus_parse(list, &out), "'%s' is a list", list);
	return out;
}

/* What the ranks of a machine get: one digit per rank, '-' for none. */
struct expected {
	const char *machine;
	unsigned n_ranks;
	const char *gpus, *nics, *nodes;
	const char *first_cpus, *last_cpus; /* bound to, by rank 0 and the last; "": not bound */
	const char *gpu_why, *nic_why, *node_why, *cpus_why; /* of rank 0 */
};

#define ONE "there is one NUMA node"
#define FLAT "not bound: there is one NUMA node"
#define ALL "not bound: all CPUs are near mlx5_0"
#define EACH "one for each local rank; this is 0"
#define UNDER "nearest to GPU 0: both below host bridge 0000:[00-02]"
#define VM "nearest to GPU 0: both below host bridge 0000:[00-00]; 2 are as near"
#define PAIR "nearest to GPU 0: both below PCI switch 0000:01:00.0; 2 are as near"
#define NEAR "near mlx5_0"
#define HERE "mlx5_0 is there"
static const struct expected table[] = {
	{"one-socket", 1, "0", "0", "-", "", "", EACH, UNDER, ONE, ALL},
	{"one-socket", 2, "00", "00", "--", "", "", "for all 2 local ranks", UNDER, ONE, ALL},
	{"one-socket", 4, "0000", "0000", "----", "", "", "only one", UNDER, ONE, ALL},
	{"one-socket", 8, "00000000", "00000000", "--------", "", "", "only one", UNDER, ONE, ALL},

	{"two-sockets", 1, "0", "0", "0", "0-15", "0-15", EACH, UNDER, HERE, NEAR},
	{"two-sockets", 2, "01", "01", "01", "0-15", "16-31", EACH, UNDER, HERE, NEAR},
	{"two-sockets", 4, "0101", "0101", "0101", "0-15", "16-31",
	 "in turn: 4 local ranks share 2 GPUs", UNDER, HERE, NEAR},
	{"two-sockets", 8, "01010101", "01010101", "01010101", "0-15", "16-31", "in turn", UNDER,
	 HERE, NEAR},

	{"8-gpu-8-nic", 1, "0", "0", "0", "0-31", "0-31", EACH, PAIR, HERE, NEAR},
	{"8-gpu-8-nic", 2, "01", "01", "00", "0-31", "0-31", EACH, PAIR, HERE, NEAR},
	{"8-gpu-8-nic", 4, "0123", "0123", "0000", "0-31", "0-31", EACH, PAIR, HERE, NEAR},
	{"8-gpu-8-nic", 8, "01234567", "01234567", "00001111", "0-31", "32-63", EACH, PAIR, HERE,
	 NEAR},

	{"4-gpu-1-nic", 1, "0", "0", "0", "0-15", "0-15", EACH, "both below host bridge", HERE,
	 NEAR},
	{"4-gpu-1-nic", 2, "01", "00", "00", "0-15", "0-15", EACH, "both below host bridge", HERE,
	 NEAR},
	{"4-gpu-1-nic", 4, "0123", "0000", "0000", "0-15", "0-15", EACH, "both below host bridge",
	 HERE, NEAR},
	{"4-gpu-1-nic", 8, "01230123", "00000000", "00000000", "0-15", "0-15", "share 4 GPUs",
	 "both below host bridge", HERE, NEAR},

	{"vm-flat", 1, "0", "0", "-", "", "", EACH, VM, ONE, FLAT},
	{"vm-flat", 2, "00", "01", "--", "", "", "only one", VM, ONE, FLAT},
	{"vm-flat", 4, "0000", "0101", "----", "", "", "only one", VM, ONE, FLAT},
	{"vm-flat", 8, "00000000", "01010101", "--------", "", "", "only one", VM, ONE, FLAT},

	{"container", 1, "-", "-", "-", "", "", "there is none", "no NIC is seen", ONE, FLAT},
	{"container", 2, "--", "--", "--", "", "", "there is none", "no NIC is seen", ONE, FLAT},
	{"container", 4, "----", "----", "----", "", "", "there is none", "no NIC is seen", ONE,
	 FLAT},
	{"container", 8, "--------", "--------", "--------", "", "", "there is none",
	 "no NIC is seen", ONE, FLAT},

	/* mlx5_1 is down */
	{"nic-without-gpu", 1, "-", "0", "0", "0-7", "0-7", "there is none",
	 "nearest to the CPUs of this process: on a NUMA node of theirs; 2 are as near", HERE,
	 NEAR},
	{"nic-without-gpu", 2, "--", "02", "01", "0-7", "8-15", "there is none", "take turns", HERE,
	 NEAR},
	{"nic-without-gpu", 4, "----", "0202", "0101", "0-7", "8-15", "there is none", "take turns",
	 HERE, NEAR},
	{"nic-without-gpu", 8, "--------", "02020202", "01010101", "0-7", "8-15", "there is none",
	 "take turns", HERE, NEAR},

	{"gpu-without-nic", 1, "0", "-", "0", "0-7", "0-7", EACH, "no NIC is seen",
	 "GPU 0 is there", "near GPU 0"},
	{"gpu-without-nic", 2, "01", "--", "01", "0-7", "8-15", EACH, "no NIC", "GPU 0", "GPU 0"},
	{"gpu-without-nic", 4, "0101", "----", "0101", "0-7", "8-15", "share 2 GPUs", "no NIC",
	 "GPU 0", "GPU 0"},
	{"gpu-without-nic", 8, "01010101", "--------", "01010101", "0-7", "8-15", "share", "no NIC",
	 "GPU 0", "GPU 0"},

	/* network interfaces are NICs, too, when there is no RDMA; the GPU is beside eth1 */
	{"ethernet", 1, "0", "1", "1", "8-15", "8-15", EACH, "both below host bridge", "eth1",
	 "near eth1"},
	{"ethernet", 2, "00", "11", "11", "8-15", "8-15", "only one", "both below host bridge",
	 "eth1", "near eth1"},
	{"ethernet", 4, "0000", "1111", "1111", "8-15", "8-15", "only one",
	 "both below host bridge", "eth1", "eth1"},
	{"ethernet", 8, "00000000", "11111111", "11111111", "8-15", "8-15", "only one",
	 "both below host bridge", "eth1", "eth1"},
};
#undef ONE
#undef FLAT
#undef ALL
#undef EACH
#undef UNDER
#undef VM
#undef PAIR
#undef NEAR
#undef HERE

static void check_cpus(const struct expected *row, uint32_t rank, const struct spri_seat *seat)
{
	const char *list = rank ? row->last_cpus : row->first_cpus;
	char text[SPRI_CPUS_TEXT];

	cr_assert_eq(seat->bind, list[0] != '\0', "%s, rank %u of %u: bound", row->machine, rank,
		     row->n_ranks);
	cr_assert_str_eq(spri_cpus_text(&seat->cpus, text),
			 list[0] ? list : spri_cpus_text(&topo.usable, (char[SPRI_CPUS_TEXT]){0}),
			 "%s, rank %u of %u: CPUs", row->machine, rank, row->n_ranks);
}

static void check_row(const struct expected *row)
{
	for (uint32_t rank = 0; rank < row->n_ranks; rank++) {
		struct spri_seat_request q = request(rank, row->n_ranks);
		struct spri_seat seat = decide(&q);
		const char *nic = nic_name(&seat);
		char got[4] = {(char)(seat.gpu < 0 ? '-' : '0' + gpu_number(&seat)),
			       nic[0] ? nic[strlen(nic) - 1] : '-',
			       (char)(seat.node < 0 ? '-' : '0' + seat.node)};
		char want[4] = {row->gpus[rank], row->nics[rank], row->nodes[rank]};

		cr_assert_str_eq(got, want, "%s, rank %u of %u: GPU, NIC, node", row->machine, rank,
				 row->n_ranks);
		if (rank == 0 || rank == row->n_ranks - 1)
			check_cpus(row, rank, &seat);
		if (rank > 0)
			continue;
		expect_why(seat.gpu_why, row->gpu_why);
		expect_why(seat.nic_why, row->nic_why);
		expect_why(seat.node_why, row->node_why);
		expect_why(seat.cpus_why, row->cpus_why);
	}
}

Test(seat, recorded_machines)
{
	for (size_t i = 0; i < spri_countof(table); i++) {
		load(table[i].machine);
		check_row(&table[i]);
	}
}

Test(seat, a_cgroup_is_honoured)
{
	load("container");
	cr_assert(spri_cpus_equal(&topo.usable, &(struct spri_cpus){{0xf}}), "four of eight CPUs");
	cr_assert(spri_cpus_equal(&topo.cpus, &(struct spri_cpus){{0xff}}), "all are seen");
}

/* taskset: within the NIC's CPUs, partly, not at all; and which NIC then is near. */
Test(seat, only_allowed_cpus_are_bound_to)
{
	struct spri_seat_request q;
	struct spri_seat seat;
	struct spri_cpus want;

	load("two-sockets");
	q = request(0, 1);
	q.allowed = want = cpus("4-7");
	seat = decide(&q);
	cr_assert(seat.bind && spri_cpus_equal(&seat.cpus, &want), "those within");
	expect_why(seat.cpus_why, "near mlx5_0 (0-15), those that are allowed here");
	q.allowed = cpus("12-20");
	want = cpus("12-15");
	seat = decide(&q);
	cr_assert(seat.bind && spri_cpus_equal(&seat.cpus, &want), "what is in both");
	q.allowed = cpus("16-20");
	seat = decide(&q);
	cr_assert(!seat.bind && spri_cpus_equal(&seat.cpus, &q.allowed), "the GPU's NIC is far");
	expect_why(seat.cpus_why, "near mlx5_0 (0-15), but none of these CPUs is allowed here");
	load("nic-without-gpu");
	q = request(0, 1);
	q.allowed = cpus("8-9");
	seat = decide(&q);
	cr_assert_str_eq(nic_name(&seat), "mlx5_2", "near the CPUs of the process");
	cr_assert(seat.bind && spri_cpus_equal(&seat.cpus, &q.allowed));
}

Test(seat, a_forbidden_node_is_left_alone)
{
	struct spri_seat_request q;
	struct spri_seat seat;

	load("two-sockets");
	for (unsigned i = 0; i < topo.n; i++)
		if (topo.objects[i].kind == SPRI_TOPO_NODE)
			topo.objects[i].allowed = topo.objects[i].number == 0;
	q = request(1, 2);
	seat = decide(&q);
	cr_assert_eq(seat.node, -1);
	expect_why(seat.node_why, "mlx5_1 is on node 1, whose memory is not allowed here");
}

/* SPR_DEVICE, and what it is to give. */
static const struct {
	const char *device;
	int gpu;
	const char *nic;
} devices[] = {
	{"3", 3, "mlx5_2"},	   {"0000:18:00.0", 7, "mlx5_6"}, {"0B:00.0", 3, "mlx5_2"},
	{"mlx5_7", 0, "mlx5_7"},   {"eth7", 0, "mlx5_7"},	  {"6,mlx5_1", 6, "mlx5_1"},
	{"mlx5_1,6", 6, "mlx5_1"},
};

Test(seat, spr_device_names)
{
	load("8-gpu-8-nic");
	for (size_t i = 0; i < spri_countof(devices); i++) {
		struct spri_seat_request q = request(0, 1);
		struct spri_seat seat;

		q.device = devices[i].device;
		seat = decide(&q);
		cr_assert_eq(gpu_number(&seat), devices[i].gpu, "SPR_DEVICE=%s: GPU %d", q.device,
			     gpu_number(&seat));
		cr_assert_str_eq(nic_name(&seat), devices[i].nic, "SPR_DEVICE=%s", q.device);
		expect_why(strstr(q.device, "eth") || strstr(q.device, "mlx") ? seat.nic_why
									      : seat.gpu_why,
			   "SPR_DEVICE names it");
	}
}

Test(seat, spr_device_refuses)
{
	static const struct {
		const char *device, *words;
	} rows[] = {
		{"8", "'8' is neither a GPU (0 (0000:03:00.0), 1 (0000:05:00.0)"},
		{"mlx9", "nor a NIC (mlx5_0, mlx5_1, mlx5_2"},
		{"0,", "'' is neither"},
		{"0,1", "more than one GPU"},
		{"mlx5_0,mlx5_1", "more than one NIC"},
		{"0,mlx5_0,nonsense", "'nonsense' is neither"},
	};
	struct spri_text text = {""};
	struct spri_seat seat;

	load("8-gpu-8-nic");
	for (size_t i = 0; i < spri_countof(rows); i++) {
		struct spri_seat_request q = request(0, 1);

		q.device = rows[i].device;
		cr_assert_eq(spri_seat_decide(&topo, &q, &seat, &text), SPR_EENVIRONMENT, "%s",
			     q.device);
		expect_why(text.s, rows[i].words);
		expect_why(text.s, "SPR_DEVICE is '");
	}
	load("container");
	text.s[0] = '\0';
	cr_assert_eq(
		spri_seat_decide(&topo,
				 &(struct spri_seat_request){.local_size = 1, .device = "mlx5_0"},
				 &seat, &text),
		SPR_EENVIRONMENT);
	expect_why(text.s, "nor a NIC (there is none)");
}

/* SPR_RDMA_DEVICE and SPR_TCP_IF decide before SPR_DEVICE does. */
Test(seat, lists_of_devices_win)
{
	struct spri_seat_request q;
	struct spri_seat seat;

	load("8-gpu-8-nic");
	q = request(0, 1);
	q.rdma_devices = "mlx5_3:1,mlx5_5";
	seat = decide(&q);
	cr_assert_str_eq(nic_name(&seat), "mlx5_3");
	cr_assert_str_eq(seat.devices, "", "the list is the transport's to read");
	q.device = "mlx5_0";
	seat = decide(&q);
	cr_assert_str_eq(nic_name(&seat), "mlx5_3");
	expect_why(seat.nic_why, "SPR_DEVICE names mlx5_0, but SPR_RDMA_DEVICE does not");
	q.rdma_devices = "^mlx5_0,mlx5_1";
	seat = decide(&q);
	cr_assert_str_eq(nic_name(&seat), "mlx5_2");
	q.device = NULL;
	q.rdma_devices = "mlx9";
	q.interfaces = "none";
	seat = decide(&q);
	cr_assert_eq(seat.nic, -1);
	expect_why(seat.nic_why, "SPR_RDMA_DEVICE or SPR_TCP_IF leaves none");
	load("ethernet");
	q = request(0, 1);
	q.interfaces = "eth0";
	seat = decide(&q);
	cr_assert_str_eq(nic_name(&seat), "eth0");
	q.interfaces = "10.0.0.0/8";
	seat = decide(&q);
	cr_assert_str_eq(nic_name(&seat), "eth1", "addresses are not known here");
	load("nic-without-gpu");
	q = request(0, 1);
	q.device = "mlx5_1";
	seat = decide(&q);
	cr_assert_str_eq(nic_name(&seat), "mlx5_0");
	expect_why(seat.nic_why, "SPR_DEVICE names mlx5_1, but its port is down");
}

/* What verbs is told: the chosen one first, then by nearness; nothing when all are alike. */
Test(seat, devices_are_ordered_for_the_transport)
{
	struct spri_seat_request q;
	struct spri_seat seat;

	load("8-gpu-8-nic");
	q = request(3, 8);
	seat = decide(&q);
	cr_assert_str_eq(seat.devices, "mlx5_3,mlx5_2,mlx5_0,mlx5_1,mlx5_4,mlx5_5,mlx5_6,mlx5_7");
	load("vm-flat");
	q = request(0, 1);
	seat = decide(&q);
	cr_assert_str_eq(seat.devices, "", "one rank may use both");
	q = request(1, 2);
	seat = decide(&q);
	cr_assert_str_eq(seat.devices, "mlx5_1,mlx5_0");
	q = request(0, 1);
	q.device = "mlx5_1";
	seat = decide(&q);
	cr_assert_str_eq(seat.devices, "mlx5_1,mlx5_0");
	load("one-socket");
	q = request(0, 1);
	seat = decide(&q);
	cr_assert_str_eq(seat.devices, "", "there is one");
}

static const struct {
	const char *bind, *want, *why;
} binds[] = {
	{"auto", "0-15", "near mlx5_0"},
	{"node", "0-15", "near mlx5_0"},
	{"none", "", "not bound: SPR_BIND is none"},
	{"3,5-6", "3,5-6", "SPR_BIND says so"},
	{"30-40", "30-31", "SPR_BIND says so (30-40), those that are allowed here"},
	{"100", "", "not bound: SPR_BIND says so (100), but none of these CPUs is allowed"},
};

Test(seat, spr_bind)
{
	static const char *const bad[] = {"nodes", "0-", "-1", "3-1", "1,,2", "1024", "0 ", "0x1"};
	char got[SPRI_CPUS_TEXT];
	struct spri_text text = {""};
	struct spri_seat seat;

	load("two-sockets");
	for (size_t i = 0; i < spri_countof(binds); i++) {
		struct spri_seat_request q = request(0, 1);

		q.bind = binds[i].bind;
		seat = decide(&q);
		cr_assert_eq(seat.bind, binds[i].want[0] != '\0', "SPR_BIND=%s", q.bind);
		if (seat.bind)
			cr_assert_str_eq(spri_cpus_text(&seat.cpus, got), binds[i].want,
					 "SPR_BIND=%s", q.bind);
		expect_why(seat.cpus_why, binds[i].why);
	}
	for (size_t i = 0; i < spri_countof(bad); i++) {
		struct spri_seat_request q = request(0, 1);

		q.bind = bad[i];
		cr_assert_eq(spri_seat_decide(&topo, &q, &seat, &text), SPR_EENVIRONMENT, "%s",
			     bad[i]);
		expect_why(text.s, bad[i]);
		expect_why(text.s, "must be auto, none, node, or CPUs below 1024");
	}
	load("one-socket");
	struct spri_seat_request q = request(0, 1);

	q.bind = "node";
	seat = decide(&q);
	cr_assert(seat.bind && spri_cpus_equal(&seat.cpus, &topo.cpus), "asked for");
}

/*
 * A launcher that shows each rank one GPU, and not in order: ranks still spread over the NICs of a
 * switch.
 */
Test(seat, hidden_gpus_take_their_turns)
{
	static const int gpus[] = {0, 2, 1, 3, 4, 6, 5, 7};
	char want[] = "mlx5_?";

	load("8-gpu-8-nic");
	for (uint32_t rank = 0; rank < 8; rank++) {
		struct spri_seat_request q = request(rank, 8);
		struct spri_seat seat;
		int seen = 0;

		for (int i = -1; (i = spri_topo_next(&topo, SPRI_TOPO_GPU, i + 1)) >= 0;)
			topo.objects[i].number = seen++ == gpus[rank] ? 0 : -1;
		seat = decide(&q);
		want[5] = (char)('0' + gpus[rank]);
		cr_assert_eq(gpu_number(&seat), 0);
		cr_assert_str_eq(nic_name(&seat), want, "rank %u, GPU %d", rank, gpus[rank]);
	}
	for (int i = -1; (i = spri_topo_next(&topo, SPRI_TOPO_GPU, i + 1)) >= 0;)
		topo.objects[i].number = -1;
	struct spri_seat_request q = request(0, 1);
	struct spri_seat seat = decide(&q);

	cr_assert_eq(seat.gpu, -1, "none can be used");
	expect_why(seat.gpu_why, "there is one at 0000:03:00.0, but this process cannot use it");
}

Test(seat, files_that_are_none)
{
	struct spri_text text = {""};

	load("container"); /* skips without hwloc */
	cr_assert_eq(spri_topo_read("/no/such/file.xml", &topo, &text), SPR_EARGUMENT);
	expect_why(text.s, "/no/such/file.xml: hwloc cannot read it: No such file");
	cr_assert_eq(spri_topo_read("/dev/null", &topo, &text), SPR_EARGUMENT);
	expect_why(text.s, "/dev/null: hwloc cannot read it");
}

Test(seat, without_hwloc_little_is_known)
{
	struct spri_text text = {""};
	struct spri_seat_request q;
	struct spri_seat seat;

	if (spri_topo_read("/no/such/file.xml", &topo, &text) != SPR_EUNSUPPORTED)
		cr_skip("built with hwloc");
	expect_why(text.s, "it takes hwloc to read it");
	cr_assert_eq(spri_topo_read(NULL, &topo, &text), 0, "%s", text.s);
	cr_assert(topo.n == 0 && !spri_cpus_empty(&topo.usable), "CPUs, and no devices");
	expect_why(topo.source, "built without hwloc");
	q = request(0, 1);
	seat = decide(&q);
	cr_assert(seat.gpu < 0 && seat.nic < 0 && seat.node < 0 && !seat.bind);
	expect_why(seat.node_why, "NUMA nodes are not known");
	q.device = "mlx5_0";
	cr_assert_eq(spri_seat_decide(&topo, &q, &seat, &text), SPR_EENVIRONMENT);
	expect_why(text.s, "built without hwloc");
	q.device = NULL;
	q.bind = "0";
	q.allowed = cpus("0-1");
	seat = decide(&q);
	cr_assert(seat.bind && spri_cpus_has(&seat.cpus, 0) && !spri_cpus_has(&seat.cpus, 1),
		  "a list needs no topology");
}

Test(seat, lists_of_cpus)
{
	static const char *const lists[] = {"0", "0-3", "0,2,4", "5-7,1023", "63-64"};
	char text[SPRI_CPUS_TEXT], many[400] = "0";
	struct spri_cpus set;

	for (size_t i = 0; i < spri_countof(lists); i++) {
		set = cpus(lists[i]);
		cr_assert_str_eq(spri_cpus_text(&set, text), lists[i]);
	}
	for (int i = 2; i < 100; i += 2)
		snprintf(many + strlen(many), sizeof many - strlen(many), ",%d", i);
	set = cpus(many);
	cr_assert_str_eq(text + strlen(spri_cpus_text(&set, text)) - 4, ",...");
	memset(&set, 0, sizeof set);
	cr_assert_str_eq(spri_cpus_text(&set, text), "none");
}
