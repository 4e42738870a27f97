/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The table of codecs. A new one: a file, a row here, its name in meson.build, a paragraph in
 * docs/wire.md.
 */
#include <codec/rows.h>

static const struct spri_codec *const rows[] = {
	&spri_codec_raw32,  &spri_codec_dense, &spri_codec_bytes,
	&spri_codec_packed, &spri_codec_gaps,  &spri_codec_bitmap,
};

const struct spri_codec *spri_codec_row(unsigned i)
{
	return i < spri_countof(rows) ? rows[i] : NULL;
}

const struct spri_codec *spri_codec_find(uint8_t id)
{
	for (size_t i = 0; i < spri_countof(rows); i++)
		if (rows[i]->id == id)
			return rows[i];
	return NULL;
}
