/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The rows of the codec table, one per file. Elsewhere use spri_codec_find(). */
#ifndef SPRI_CODEC_ROWS_H
#define SPRI_CODEC_ROWS_H

#include <codec/codec.h>

extern const struct spri_codec spri_codec_raw32;  /* raw32.c */
extern const struct spri_codec spri_codec_dense;  /* dense.c */
extern const struct spri_codec spri_codec_bytes;  /* bytes.c */
extern const struct spri_codec spri_codec_packed; /* packed.c */
extern const struct spri_codec spri_codec_gaps;	  /* gaps.c */
extern const struct spri_codec spri_codec_bitmap; /* bitmap.c */

#endif
