/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The table of the primitives: one row per instruction set, best first, C last. A row may
 * be looked at on any machine and called only where spri_cpu_isa() reaches its isa.
 */
#include <kernel.h>
#include <rows.h>

static const struct spri_kernel_row table[] = {
#if SPRI_KERNELS_X86
	{SPRI_ISA_AVX512, spri_scan_avx512, spri_reduce_avx512, spri_histogram_c, spri_scatter_c,
	 spri_scale_avx512, spri_axpby_avx512, spri_weigh_avx512, spri_draw_avx512},
	{SPRI_ISA_AVX2, spri_scan_avx2, spri_reduce_avx2, spri_histogram_c, spri_scatter_c,
	 spri_scale_avx2, spri_axpby_avx2, spri_weigh_avx2, spri_draw_avx2},
#endif
	{SPRI_ISA_C, spri_scan_c, spri_reduce_c, spri_histogram_c, spri_scatter_c, spri_scale_c,
	 spri_axpby_c, spri_weigh_c, spri_draw_c},
};

const struct spri_kernel_row *spri_kernel_row(unsigned i)
{
	return i < spri_countof(table) ? &table[i] : NULL;
}

const struct spri_kernel_row *spri_kernels(void)
{
	enum spri_isa isa = spri_isa_used();
	unsigned i = 0;

	while (table[i].isa > isa)
		i++; /* ends at C, which everything allows */
	return &table[i];
}
