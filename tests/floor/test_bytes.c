/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Little-endian fields and the checksum, against values that others published. */
#include <check.h>
#include <internal/bytes.h>
#include <string.h>

Test(bytes, crc32c_known_values)
{
	uint8_t data[32];
	uint32_t crc = spri_crc32c(0, "123456789", 9);

	cr_assert_eq(crc, 0xE3069283u, "expected the catalogue's check value e3069283, got %08x",
		     crc);
	cr_assert_eq(spri_crc32c(0, "", 0), 0u, "expected 0 for no bytes");
	/* RFC 3720 (iSCSI), B.4: 32 bytes of zeros, of ones, ascending, descending. */
	memset(data, 0, sizeof data);
	cr_assert_eq(spri_crc32c(0, data, 32), 0x8A9136AAu, "expected 8a9136aa of 32 zeros");
	memset(data, 0xff, sizeof data);
	cr_assert_eq(spri_crc32c(0, data, 32), 0x62A8AB43u, "expected 62a8ab43 of 32 ones");
	for (int i = 0; i < 32; i++)
		data[i] = (uint8_t)i;
	cr_assert_eq(spri_crc32c(0, data, 32), 0x46DD794Eu, "expected 46dd794e of 0 to 31");
	for (int i = 0; i < 32; i++)
		data[i] = (uint8_t)(31 - i);
	cr_assert_eq(spri_crc32c(0, data, 32), 0x113FDB5Cu, "expected 113fdb5c of 31 to 0");
}

Test(bytes, crc32c_goes_on_where_it_stopped)
{
	static const char text[] = "The quick brown fox jumps over the lazy dog";
	size_t n = sizeof text - 1;
	uint32_t whole = spri_crc32c(0, text, n);

	for (size_t cut = 0; cut <= n; cut++)
		cr_assert_eq(spri_crc32c(spri_crc32c(0, text, cut), text + cut, n - cut), whole,
			     "expected %08x when cut at %zu", whole, cut);
}

Test(bytes, crc32c_sees_every_bit)
{
	uint8_t data[16] = {1, 2, 3};
	uint32_t before = spri_crc32c(0, data, sizeof data);

	for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		cr_assert_neq(spri_crc32c(0, data, sizeof data), before,
			      "expected bit %zu to matter", bit);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

Test(bytes, fields_are_little_endian)
{
	static const uint8_t expected[] = {0x02, 0x01, 0x0d, 0x0c, 0x0b, 0xfa, 0x08,
					   0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0xf1};
	uint8_t at[sizeof expected];

	spri_put_u16(at, 0x0102);
	spri_put_u32(at + 2, 0xfa0b0c0du);
	spri_put_u64(at + 6, 0xf102030405060708u);
	cr_assert_arr_eq(at, expected, sizeof at, "expected the low byte first");
	cr_assert_eq(spri_get_u16(at), 0x0102);
	cr_assert_eq(spri_get_u32(at + 2), 0xfa0b0c0du, "expected the top bit to survive");
	cr_assert_eq(spri_get_u64(at + 6), 0xf102030405060708u);
}
