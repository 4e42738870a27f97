/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * exp, sigmoid and tanh in single precision without branches or calls, so that compilers turn loops
 * over them into vector code. Relative error of exp below 3e-7; arguments beyond ±87 count as ±87.
 */
#ifndef SPR_PERF_TRAIN_EXP_H
#define SPR_PERF_TRAIN_EXP_H

#include <stdint.h>

static inline float train_exp(float x)
{
	union {
		int32_t i;
		float f;
	} power;
	int32_t n;
	float f;

	x = x < -87.0f ? -87.0f : x;
	x = x > 87.0f ? 87.0f : x;
	/* x = (n − 127) · ln 2 + f; the sum is positive, so cutting it rounds to the nearest. */
	n = (int32_t)(x * 1.44269504f + 127.5f);
	/* ln 2 in two parts: the first has zeros at its end, so its product is exact. */
	f = x - (float)(n - 127) * 0.693359375f + (float)(n - 127) * 2.12194440e-4f;
	power.i = n << 23;
	f = 1 + f * (1 + f * (0.5f +
			      f * (1.6666667e-1f +
				   f * (4.1666667e-2f + f * (8.3333333e-3f + f * 1.3888889e-3f)))));
	return f * power.f;
}

static inline float train_sigmoid(float x)
{
	return 1 / (1 + train_exp(-x));
}

static inline float train_tanh(float x)
{
	return 2 / (1 + train_exp(-2 * x)) - 1;
}

#endif
