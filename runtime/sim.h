/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What the rest of the runtime asks of a simulation (include/sparring/sim.h). */
#ifndef SPRI_SIM_H
#define SPRI_SIM_H

#include <internal/compiler.h>
#include <sparring/sim.h>

#include <transport.h>

struct spri_fabric *spri_sim_fabric(struct spr_sim *sim);
uint32_t spri_sim_ranks(const struct spr_sim *sim);
/*
 * Bootstrap inside a simulation: blocks this rank (others run) until all ranks called, or the
 * deadline of virtual time. Returns 0, SPR_ETIMEOUT, SPR_ELOST.
 */
int spri_sim_allgather(struct spr_sim *sim, uint32_t rank, const void *mine, void *all,
		       size_t bytes, uint64_t deadline_ns) SPRI_MUST;

#endif
