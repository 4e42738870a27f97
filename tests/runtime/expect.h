/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What recorded steps (steps.h) are held to: each asserts, so call it in the test's own thread. */
#ifndef SPR_TESTS_EXPECT_H
#define SPR_TESTS_EXPECT_H

#include "steps.h"

/* A run in words, for messages. Static storage. */
const char *label(const struct run *run);
/* Every step of every rank went through. */
void expect_all_well(const struct run *run);
/*
 * The sum is the same on all ranks, sorted, without zeros; the update is sum / P, zero
 * elsewhere.
 */
void expect_result_form(const struct run *run);
/* Residuals and gradients before = residuals after + sum, element by element, exactly. */
void expect_mass(const struct run *run);
/* All updates, sums and residuals have the bits of base. */
void expect_same(const struct run *run, const struct run *base, const char *what);
/* The step failed on every rank with this status and text, and everything is as before. */
void expect_none(const struct run *run, int step, int status, const char *part);
/* Steps before the failed one are those of a run without failure, the one after it works. */
void expect_as_if_nothing(const struct run_options *o, const struct run *run, int failed);

#endif
