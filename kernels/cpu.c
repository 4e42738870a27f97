/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Asks the CPU what it can execute (CPUID) and the operating system what it saves at a context
 * switch (XCR0): an instruction set counts only when both say yes. Elsewhere than on x86-64 there
 * is C. The answer is kept; the mask lies beside it. Both are single words, so that threads need
 * no lock: whoever asks first computes, and everybody computes the same.
 */
#include <cpu.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define XCR0_YMM 0x06u /* SSE and upper halves of YMM */
#define XCR0_ZMM 0xe6u /* and mask registers, upper halves of ZMM, ZMM16 to 31 */

__attribute__((target("xsave"))) static uint64_t read_xcr0(void)
{
	return _xgetbv(0);
}

static enum spri_isa detect(void)
{
	const unsigned avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
	unsigned eax, ebx, ecx, edx;
	uint64_t xcr0;

	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE) || !(ecx & bit_AVX))
		return SPRI_ISA_C;
	xcr0 = read_xcr0();
	if ((xcr0 & XCR0_YMM) != XCR0_YMM)
		return SPRI_ISA_C;
	if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(ebx & bit_AVX2))
		return SPRI_ISA_C;
	if ((ebx & avx512) != avx512 || (xcr0 & XCR0_ZMM) != XCR0_ZMM)
		return SPRI_ISA_AVX2;
	return SPRI_ISA_AVX512;
}

#else

static enum spri_isa detect(void)
{
	return SPRI_ISA_C;
}

#endif

static int detected = -1; /* enum spri_isa; -1: not asked yet */
static int most_allowed = SPRI_ISA_COUNT - 1;

const char *spri_isa_name(enum spri_isa isa)
{
	static const char *const names[SPRI_ISA_COUNT] = {"c", "avx2", "avx512"};

	assert((unsigned)isa < SPRI_ISA_COUNT);
	return names[isa];
}

enum spri_isa spri_cpu_isa(void)
{
	int isa = __atomic_load_n(&detected, __ATOMIC_RELAXED);

	if (spri_unlikely(isa < 0)) {
		isa = (int)detect();
		__atomic_store_n(&detected, isa, __ATOMIC_RELAXED);
	}
	return (enum spri_isa)isa;
}

void spri_isa_allow(enum spri_isa most)
{
	assert((unsigned)most < SPRI_ISA_COUNT);
	__atomic_store_n(&most_allowed, (int)most, __ATOMIC_RELAXED);
}

enum spri_isa spri_isa_used(void)
{
	int allowed = __atomic_load_n(&most_allowed, __ATOMIC_RELAXED);
	int able = (int)spri_cpu_isa();

	return (enum spri_isa)(allowed < able ? allowed : able);
}
