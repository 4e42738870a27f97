/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The stand-in driver: its start, devices, contexts, errors and the failures asked for. */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
struct device standin_devices[MOST_DEVICES];

static pid_t started; /* the process that called cuInit */
static _Thread_local struct {
	CUcontext at[MOST_CONTEXTS];
	int n;
} contexts;

unsigned long long standin_number(const char *variable, unsigned long long fallback)
{
	const char *s = getenv(variable);

	return s && *s ? strtoull(s, NULL, 10) : fallback;
}

bool standin_fails(const char *call, CUresult *code)
{
	static char counted[128]; /* the order whose calls are counted */
	static unsigned long count;
	const char *order = getenv("EMU_CUDA_FAIL"), *colon = order ? strchr(order, ':') : NULL;
	bool fails = false;
	unsigned long n;
	char *end;

	if (!colon || strlen(call) != (size_t)(colon - order) ||
	    strncmp(order, call, (size_t)(colon - order)) != 0)
		return false;
	n = strtoul(colon + 1, &end, 10);
	pthread_mutex_lock(&standin_lock);
	if (strcmp(counted, order) != 0) {
		snprintf(counted, sizeof counted, "%s", order);
		count = 0;
	}
	count++;
	fails = n == 0 || count == n;
	pthread_mutex_unlock(&standin_lock);
	if (fails)
		*code = (CUresult)strtol(*end ? end + 1 : end, NULL, 10);
	return fails;
}

/* The calls that need no cuInit. */
static bool early(const char *call)
{
	return !strcmp(call, "cuInit") || !strcmp(call, "cuDriverGetVersion");
}

CUresult standin_begin(const char *call, CUcontext *context)
{
	char name[64];
	size_t length;
	CUresult code;

	snprintf(name, sizeof name, "%s", call);
	length = strlen(name);
	if (length > 3 && !strcmp(name + length - 3, "_v2"))
		name[length - 3] = '\0';
	if (started && started != getpid()) {
		fprintf(stderr, "stand-in driver: %s in a child of fork\n", name);
		abort();
	}
	if (standin_fails(name, &code))
		return code;
	if (!started && !early(name))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context)
		return CUDA_SUCCESS;
	if (contexts.n == 0 || !contexts.at[contexts.n - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = contexts.at[contexts.n - 1];
	pthread_mutex_lock(&standin_lock);
	code = (*context)->sticky;
	pthread_mutex_unlock(&standin_lock);
	return code;
}

/* ---- errors ---- */

static const struct {
	CUresult code;
	const char *name, *words;
} errors[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
	 "no kernel image is available for execution on the device"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
	 "an illegal memory access was encountered"},
	{CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

CUresult cuGetErrorName(CUresult error, const char **out)
{
	for (size_t i = 0; i < spri_countof(errors); i++)
		if (errors[i].code == error)
			return *out = errors[i].name, CUDA_SUCCESS;
	*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
	for (size_t i = 0; i < spri_countof(errors); i++)
		if (errors[i].code == error)
			return *out = errors[i].words, CUDA_SUCCESS;
	*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

/* ---- start and devices ---- */

static int count(void)
{
	unsigned long long n = standin_number("EMU_CUDA_DEVICES", 1);

	return n < MOST_DEVICES ? (int)n : MOST_DEVICES;
}

CUresult cuInit(unsigned flags)
{
	CUresult r = standin_begin(__func__, NULL);

	if (r != CUDA_SUCCESS)
		return r;
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (count() == 0)
		return CUDA_ERROR_NO_DEVICE;
	started = getpid();
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	CUresult r = standin_begin(__func__, NULL);

	*version = (int)standin_number("EMU_CUDA_VERSION", CUDA_VERSION);
	return r;
}

CUresult cuDeviceGetCount(int *n)
{
	CUresult r = standin_begin(__func__, NULL);

	*n = count();
	return r;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult r = standin_begin(__func__, NULL);

	if (r != CUDA_SUCCESS)
		return r;
	if (ordinal < 0 || ordinal >= count())
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	CUresult r = standin_begin(__func__, NULL);

	snprintf(name, (size_t)bytes, "stand-in GPU %d", device);
	return r;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	CUresult r = standin_begin(__func__, NULL);

	(void)device;
	*bytes = standin_number("EMU_CUDA_BYTES", 4ull << 30);
	return r;
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device)
{
	CUresult r = standin_begin(__func__, NULL);
	const char *s = getenv("EMU_CUDA_PCI");

	for (int i = 0; i < device && s; i++)
		s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL;
	if (s)
		snprintf(id, (size_t)bytes, "%.*s", (int)strcspn(s, ","), s);
	else /* upper case, as the driver has it */
		snprintf(id, (size_t)bytes, "0000:%02X:00.0", 0x3b + 0x10 * device);
	return r;
}

/* The value of an attribute in EMU_CUDA_ATTRIBUTES. */
static bool ordered_attribute(CUdevice_attribute attribute, int *value)
{
	const char *s = getenv("EMU_CUDA_ATTRIBUTES");
	char *end;

	while (s && *s) {
		long number = strtol(s, &end, 10);
		long is = strtol(*end ? end + 1 : end, &end, 10);

		if (number == (long)attribute) {
			*value = (int)is;
			return true;
		}
		s = *end ? end + 1 : end;
	}
	return false;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	static const struct {
		CUdevice_attribute attribute;
		int value;
	} known[] = {
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 3},
		{CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 1},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 0},
	};
	CUresult r = standin_begin(__func__, NULL);

	if (r != CUDA_SUCCESS)
		return r;
	if (device < 0 || device >= count())
		return CUDA_ERROR_INVALID_DEVICE;
	if (ordered_attribute(attribute, value))
		return CUDA_SUCCESS;
	for (size_t i = 0; i < spri_countof(known); i++)
		if (known[i].attribute == attribute)
			return *value = known[i].value, CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_VALUE;
}

/* ---- contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult r = standin_begin(__func__, NULL);
	struct device *d;

	if (r != CUDA_SUCCESS)
		return r;
	if (device < 0 || device >= count())
		return CUDA_ERROR_INVALID_DEVICE;
	d = &standin_devices[device];
	pthread_mutex_lock(&standin_lock);
	r = standin_open_device(d);
	if (r == CUDA_SUCCESS) {
		d->context.device = device;
		d->context.users++;
		*context = &d->context;
	}
	pthread_mutex_unlock(&standin_lock);
	return r;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	CUresult r = standin_begin(__func__, NULL);
	struct device *d;
	CUstream none = NULL;

	if (r != CUDA_SUCCESS)
		return r;
	if (device < 0 || device >= count())
		return CUDA_ERROR_INVALID_DEVICE;
	d = &standin_devices[device];
	pthread_mutex_lock(&standin_lock);
	if (d->context.users == 0)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (--d->context.users == 0) {
		none = d->context.none;
		d->context.none = NULL;
		d->context.sticky = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	if (none)
		standin_close_stream(none);
	return r;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
	CUresult r = standin_begin(__func__, NULL);

	if (r != CUDA_SUCCESS)
		return r;
	if (!context || contexts.n == MOST_CONTEXTS)
		return CUDA_ERROR_INVALID_CONTEXT;
	contexts.at[contexts.n++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
	CUresult r = standin_begin(__func__, NULL);

	if (r != CUDA_SUCCESS)
		return r;
	if (contexts.n == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = contexts.at[--contexts.n];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	CUresult r = standin_begin(__func__, NULL);

	*context = contexts.n > 0 ? contexts.at[contexts.n - 1] : NULL;
	return r;
}
