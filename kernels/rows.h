/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The functions that the rows of the table point to, one family per file and instruction set.
 * Contracts: struct spri_kernel_row. Histogram and scatter exist in C only: they are bound by
 * one dependent store per element, which no vector instruction makes shorter.
 */
#ifndef SPRI_ROWS_H
#define SPRI_ROWS_H

#include <kernel.h>

void spri_scan_c(struct spri_scan *s);
void spri_scan_avx2(struct spri_scan *s);
void spri_scan_avx512(struct spri_scan *s);

bool spri_reduce_c(float *out, const float *a, const float *b, uint64_t n);
bool spri_reduce_avx2(float *out, const float *a, const float *b, uint64_t n);
bool spri_reduce_avx512(float *out, const float *a, const float *b, uint64_t n);

void spri_scale_c(float *out, const float *in, uint64_t n, float factor);
void spri_scale_avx2(float *out, const float *in, uint64_t n, float factor);
void spri_scale_avx512(float *out, const float *in, uint64_t n, float factor);

bool spri_axpby_c(float *out, float a, const float *x, float b, const float *y, uint64_t n);
bool spri_axpby_avx2(float *out, float a, const float *x, float b, const float *y, uint64_t n);
bool spri_axpby_avx512(float *out, float a, const float *x, float b, const float *y, uint64_t n);

void spri_weigh_c(struct spri_weigh *s);
void spri_weigh_avx2(struct spri_weigh *s);
void spri_weigh_avx512(struct spri_weigh *s);

void spri_draw_c(struct spri_draw *s);
void spri_draw_avx2(struct spri_draw *s);
void spri_draw_avx512(struct spri_draw *s);

void spri_histogram_c(const float *v, uint64_t n, unsigned shift, uint64_t *bins);
void spri_scatter_c(float *out, uint64_t base, const uint64_t *index, const float *value,
		    uint64_t n, float factor);

#endif
