/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Applying a cut that spri_cut found; shared by trim and select. */
#ifndef SPRI_CUT_H
#define SPRI_CUT_H

#include <kernel.h>

/*
 * Keeps in list the entries whose key is above `key` and the first n_equal of those that equal it,
 * k in all; appends the others to trimmed (NULL: thrown away).
 */
void spri_cut_apply(struct spri_list *list, uint64_t k, uint32_t key, uint64_t n_equal,
		    struct spri_list *trimmed);

#endif
