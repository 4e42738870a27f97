/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The table of ways to meet, in the order in which they are tried; see bootstrap.h. */
#include <bootstrap/bootstrap.h>

static const struct spri_bootstrap *const rows[] = {
	&spri_bootstrap_callback,
	&spri_bootstrap_sim,
	&spri_bootstrap_env,
	&spri_bootstrap_alone,
};

const struct spri_bootstrap *spri_bootstrap_row(unsigned i)
{
	return i < spri_countof(rows) ? rows[i] : NULL;
}
