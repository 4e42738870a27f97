/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What this CPU and operating system can execute, and a mask to allow less (SPR_ISA). */
#ifndef SPRI_CPU_H
#define SPRI_CPU_H

#include <internal/compiler.h>

/* Ordered: each includes what stands before it. C is always there. */
enum spri_isa {
	SPRI_ISA_C = 0,
	SPRI_ISA_AVX2 = 1,
	SPRI_ISA_AVX512 = 2, /* F, BW, DQ, VL */
	SPRI_ISA_COUNT
};

/* "c", "avx2", "avx512". */
const char *spri_isa_name(enum spri_isa isa);

/* The most advanced set that CPU and OS support (XCR0 checked). */
enum spri_isa spri_cpu_isa(void);

/* Sets the most advanced set to use, in this process, from now on. Not above spri_cpu_isa(). */
void spri_isa_allow(enum spri_isa most);

/* The set in use: min(spri_cpu_isa(), the mask). */
enum spri_isa spri_isa_used(void);

#endif
