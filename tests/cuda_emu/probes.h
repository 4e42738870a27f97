/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Between probes.cu and test_cuda_emu.c. */
#ifndef SPR_TESTS_PROBES_H
#define SPR_TESTS_PROBES_H

#include <stdint.h>

#define PROBE_THREADS 96u

struct probe_sum {
	uint64_t largest;
	unsigned swapped, added, odd, blocks_with_sought;
};

/* A structure as a parameter. */
struct probe_factor {
	unsigned by, sought;
};

enum probe_wrong {
	PROBE_BARRIER_LEFT_OUT,
	PROBE_TWO_BARRIERS,
	PROBE_LANE_ENDED,
	PROBE_MASKS_DIFFER,
	PROBE_LANE_OUTSIDE,
	PROBE_DEADLOCK,
	PROBE_WRONG_COUNT
};

#endif
