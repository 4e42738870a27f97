/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The order of devices that a caller asks for: in the address that peers are told, in the routes
 * that a connection tries, and without one every connection begins at another device. Needs two
 * devices in one network, which the guest machine has.
 */
#include <check.h>

#include "verbs.h"

#include <internal/clock.h>

#include <stdlib.h>
#include <string.h>

Test(verbs_order, turns)
{
	cr_assert_eq(spri_verbs_turn(NULL, "rxe0"), 0u);
	cr_assert_eq(spri_verbs_turn("", "rxe0"), 0u);
	cr_assert_eq(spri_verbs_turn("rxe0,rxe1", "rxe0"), 0u);
	cr_assert_eq(spri_verbs_turn("rxe0,rxe1", "rxe1"), 1u);
	cr_assert_eq(spri_verbs_turn("rxe0,rxe1", "rxe"), 2u, "behind all that are named");
}

/* A port with this order; skips without two devices. */
static struct verbs_port *open_port(const char *devices)
{
	const struct spri_transport *t = spri_transport_find("verbs");
	struct spri_port_options options = {.timeout_ns = SPRI_NS_PER_S,
					    .interfaces = getenv("TEST_INTERFACES"),
					    .devices = devices};
	struct spri_port *port = NULL;
	struct spri_text text = {""};

	if (t->probe(&text) < 0)
		cr_skip("%s", text.s);
	cr_assert_eq(t->listen(&options, &port, &text), 0, "%s", text.s);
	if (((struct verbs_port *)port)->n_devices < 2) {
		t->fini(port);
		cr_skip("one device has no order");
	}
	return (struct verbs_port *)port;
}

/* The device that the first route of a connection to `peer` goes out by. */
static const struct verbs_device *first_device(struct verbs_port *p, struct verbs_port *peer,
					       uint64_t id)
{
	const struct spri_transport *t = p->base.ops;
	uint8_t blob[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = blob, .id = id, .active = true, .label = "peer"};
	const struct verbs_device *first;
	struct spri_conn *conn = NULL;

	args.address_bytes = t->address(&peer->base, blob);
	cr_assert_eq(t->create(&p->base, NULL, &conn), 0);
	cr_assert_eq(t->connect(conn, &args), 0, "%s", t->describe(conn));
	first = ((struct verbs_conn *)conn)->dial.routes[0].from->device;
	t->destroy(conn);
	return first;
}

static void check_order(const char *first, const char *second)
{
	char list[2 * IBV_SYSFS_NAME_MAX];
	uint8_t blob[SPRI_ADDRESS_BYTES];
	struct spri_verbs_blob told;
	struct verbs_port *p, *peer = open_port(NULL);

	snprintf(list, sizeof list, "%s,%s", first, second);
	p = open_port(list);
	cr_assert_str_eq(p->places[p->order[0]].device->name, first);
	cr_assert(spri_verbs_blob_decode(blob, p->base.ops->address(&p->base, blob), &told) == 0,
		  "the address can be read");
	cr_assert_eq(memcmp(told.addresses[0].host, p->places[p->order[0]].address.host, 16), 0,
		     "peers hear of the first one first");
	for (uint64_t id = 1; id < 9; id++)
		cr_assert_str_eq(first_device(p, peer, id)->name, first, "connection %u",
				 (unsigned)id);
	p->base.ops->fini(&p->base);
	peer->base.ops->fini(&peer->base);
}

Test(verbs_order, the_first_is_tried_first)
{
	struct verbs_port *p = open_port(NULL);
	char names[2][IBV_SYSFS_NAME_MAX];

	for (int i = 0; i < 2; i++)
		snprintf(names[i], sizeof names[i], "%s", p->devices[i].name);
	p->base.ops->fini(&p->base);
	check_order(names[0], names[1]);
	check_order(names[1], names[0]);
}

Test(verbs_order, without_one_they_share)
{
	struct verbs_port *p = open_port(NULL), *peer = open_port(NULL);
	unsigned n[VERBS_DEVICES] = {0};

	for (uint64_t id = 1; id < 33; id++)
		n[first_device(p, peer, id)->index]++;
	cr_assert(n[0] > 0 && n[1] > 0, "both are begun at: %u and %u of 32", n[0], n[1]);
	p->base.ops->fini(&p->base);
	peer->base.ops->fini(&peer->base);
}
