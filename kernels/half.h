/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * 16-bit values, which exist on the wire only. Rounding is to nearest, ties to even; a finite value
 * beyond the type's largest becomes that largest (saturation), infinity stays infinity, every NaN
 * is the type's canonical one (0x7e00, 0x7fc0). Denormals are kept. Part of the front header.
 */
#ifndef SPRI_HALF_H
#define SPRI_HALF_H

#include <internal/compiler.h>
#include <sparring/types.h>

struct spri_list;

/* Bytes of a value. */
static inline uint32_t spri_dtype_bytes(enum spr_dtype dtype)
{
	return dtype == SPR_F32 ? 4 : 2;
}

/* One value; dtype is SPR_F16 or SPR_BF16. */
uint16_t spri_narrow_one(float v, enum spr_dtype dtype);
float spri_widen_one(uint16_t v, enum spr_dtype dtype);

/*
 * Many, as little-endian octets at any alignment: out and in hold 2n bytes. Exact for values that
 * were rounded before.
 */
void spri_narrow(uint8_t *out, const float *in, uint64_t n, enum spr_dtype dtype);
void spri_widen(float *out, const uint8_t *in, uint64_t n, enum spr_dtype dtype);

/*
 * Rounds the values of a list to dtype, in place. What rounding took off (value − rounded, exact in
 * single but for values that saturate) is appended to errors, which has room for list->count
 * more, ascending by index, without zeros; entries that became zero leave the list. Not-finite
 * values have no error. SPR_F32: nothing to do.
 */
void spri_round(struct spri_list *list, enum spr_dtype dtype, struct spri_list *errors);

/* As spri_round on n values without indices: none leaves; error[i] (may be zero) for each. */
void spri_round_dense(float *value, float *error, uint64_t n, enum spr_dtype dtype);

#endif
