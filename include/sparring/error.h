/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Error numbers. Every function of sparring that returns int returns 0 when it did what its page
 * says, and a negative number when it failed. Failures of the operating system are negative errno
 * values (-ENOMEM, -ECONNREFUSED, ...); sparring's own start at -5000. The scope says what is
 * broken, and so what has to be made again; docs/errors.md explains each.
 */
#ifndef SPARRING_ERROR_H
#define SPARRING_ERROR_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a failure leaves unusable. */
enum spr_scope {
	SPR_SCOPE_OPERATION = 0,    /* this operation; every other object works on */
	SPR_SCOPE_CONNECTION = 1,   /* a connection to one peer */
	SPR_SCOPE_COMMUNICATOR = 2, /* the communicator: destroy it, make a new one */
	SPR_SCOPE_CONTEXT = 3	    /* the context: close it, open a new one */
};

/* name, number, text, scope */
#define SPR_ERRORS(X)                                                                              \
	X(SPR_EARGUMENT, -5000, "an argument is out of its documented range", OPERATION)           \
	X(SPR_EMISMATCH, -5001, "the ranks called with different arguments", OPERATION)            \
	X(SPR_ENONFINITE, -5002, "a value is NaN or infinite", OPERATION)                          \
	X(SPR_EUNSUPPORTED, -5003, "not supported by this build, machine or transport", OPERATION) \
	X(SPR_EFORMAT, -5004, "a file is not what it should be", OPERATION)                        \
	X(SPR_EBUSY, -5005, "the object is in use by an operation in flight", OPERATION)           \
	X(SPR_EACCESS, -5100, "the peer refused a write: key, bounds or permission", CONNECTION)   \
	X(SPR_EPROTOCOL, -5101, "the peer sent what the protocol does not allow", CONNECTION)      \
	X(SPR_EVERSION, -5102, "the peer speaks another version of the protocol", CONNECTION)      \
	X(SPR_ELOST, -5200, "a rank of the communicator is lost", COMMUNICATOR)                    \
	X(SPR_ETIMEOUT, -5201, "the deadline passed", COMMUNICATOR)                                \
	X(SPR_EBOOTSTRAP, -5202, "the ranks could not meet", COMMUNICATOR)                         \
	X(SPR_EENVIRONMENT, -5300, "an environment variable has a value it cannot have", CONTEXT)  \
	X(SPR_EDEVICE, -5301, "the GPU or its driver reported a failure", CONTEXT)

#define SPR_ENUM_ROW(name, number, text, scope) name = number,
enum spr_error { SPR_OK = 0, SPR_ERRORS(SPR_ENUM_ROW) };
#undef SPR_ENUM_ROW

/*
 * The text of an error number, errno values included. Never NULL; static or thread-local
 * storage.
 */
SPR_API const char *spr_strerror(int error);

/* The symbol of an error number ("SPR_ELOST", "ENOMEM"), or "unknown". Static storage. */
SPR_API const char *spr_error_name(int error);

/* The scope of an error number; errno values count as SPR_SCOPE_OPERATION. */
SPR_API enum spr_scope spr_error_scope(int error);

#ifdef __cplusplus
}
#endif
#endif
