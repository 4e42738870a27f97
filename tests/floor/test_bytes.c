/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Little-endian fields and the checksum, against values that others published. */
#include <check.h>
#include <internal/bytes.h>
#include <string.h>

Test(bytes, crc32c_check_value)
{
	uint32_t crc = spri_crc32c(0, "123456789", 9);

	cr_assert_eq(crc, 0xE3069283u, "expected the catalogue's check value e3069283, got %08x",
		     crc);
	cr_assert_eq(spri_crc32c(0, "", 0), 0u, "expected 0 for no bytes");
}
