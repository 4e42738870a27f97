/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Nobody to meet: a communicator of one rank. The last row: fits always, never fails. */
#include <bootstrap/bootstrap.h>

#include <string.h>

static bool fits(const struct spr_context *context, const struct spr_comm_options *options)
{
	(void)context;
	(void)options;
	return true;
}

static int open_meeting(struct spri_meeting *meeting, struct spr_context *context,
			const struct spr_comm_options *options)
{
	(void)context;
	(void)options;
	meeting->rank = 0;
	meeting->n_ranks = 1;
	return 0;
}

static int allgather(struct spri_meeting *meeting, const void *mine, void *all, size_t bytes)
{
	(void)meeting;
	if (bytes)
		memcpy(all, mine, bytes);
	return 0;
}

static void close_meeting(struct spri_meeting *meeting)
{
	(void)meeting;
}

const struct spri_bootstrap spri_bootstrap_alone = {
	"alone", "one rank, nobody to meet", fits, open_meeting, allgather, close_meeting,
};
