/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Trim: the k largest of a sorted sparse list stay, the rest goes to a second list; both stay
 * sorted, because entries leave in the order in which they stand. One cut, one pass.
 */
#include <cut.h>
#include <scalar.h>

void spri_trim(struct spri_list *list, uint64_t k, struct spri_list *trimmed)
{
	uint32_t key = UINT32_MAX; /* k = 0: above everything, so that all leave */
	uint64_t n_equal = 0;

	if (k >= list->count)
		return;
	if (k > 0)
		spri_cut(list->value, list->count, k, &key, &n_equal);
	spri_cut_apply(list, k, key, n_equal, trimmed);
}
