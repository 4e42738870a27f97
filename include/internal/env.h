/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The environment variables of sparring: one list, read by the code that uses them, by the
 * warning about unknown names, and by spr_info. Nothing else in the library calls getenv.
 */
#ifndef SPRI_ENV_H
#define SPRI_ENV_H

#include <internal/compiler.h>
#include <internal/error.h>

/* identifier, name, default as text, meaning */
#define SPRI_ENV_VARIABLES(X)                                                                      \
	X(RANK, "SPR_RANK", "", "this process's rank, 0 to SPR_SIZE - 1")                          \
	X(SIZE, "SPR_SIZE", "", "number of ranks")                                                 \
	X(ROOT, "SPR_ROOT", "",                                                                    \
	  "where rank 0 listens and the others meet it: HOST:PORT or [IPV6]:PORT")                 \
	X(ROOT_FD, "SPR_ROOT_FD", "",                                                              \
	  "descriptor of a listening socket for SPR_ROOT that rank 0 inherits")                    \
	X(LOCAL_RANK, "SPR_LOCAL_RANK", "",                                                        \
	  "place among the ranks of this machine; else what the launcher says")                    \
	X(LOCAL_SIZE, "SPR_LOCAL_SIZE", "", "number of ranks on this machine")                     \
	X(DEVICE, "SPR_DEVICE", "",                                                                \
	  "this rank's GPU (number or PCI address), NIC (name), or both with a comma")             \
	X(BIND, "SPR_BIND", "auto",                                                                \
	  "CPUs of the progress thread: auto, none, node, or a list like 0-7,16")                  \
	X(TRANSPORT, "SPR_TRANSPORT", "auto", "transport to use: auto, verbs, tcp")                \
	X(TCP_IF, "SPR_TCP_IF", "",                                                                \
	  "interfaces for tcp: names or CIDR blocks, comma separated; ^ excludes")                 \
	X(RDMA, "SPR_RDMA", "prefer",                                                              \
	  "RDMA: require (or fail), prefer (else tcp, saying why), forbid")                        \
	X(RDMA_DEVICE, "SPR_RDMA_DEVICE", "",                                                      \
	  "devices for verbs: NAME or NAME:PORT, comma separated; ^ excludes")                     \
	X(RDMA_GID, "SPR_RDMA_GID", "",                                                            \
	  "index of the GID that verbs uses; else the kernel's choice")                            \
	X(RDMA_TC, "SPR_RDMA_TC", "", "traffic class of verbs, 0 to 255")                          \
	X(RDMA_SL, "SPR_RDMA_SL", "", "service level of verbs, 0 to 15")                           \
	X(RDMA_TIMEOUT, "SPR_RDMA_TIMEOUT", "18",                                                  \
	  "verbs sends again after 4.096 us x 2^this, 1 to 31")                                    \
	X(RDMA_RETRY, "SPR_RDMA_RETRY", "4", "how often verbs sends again, 1 to 6")                \
	X(GPUDIRECT, "SPR_GPUDIRECT", "prefer",                                                    \
	  "NICs that read GPU memory, for endpoints and what gtopk streams: require, prefer, "     \
	  "forbid")                                                                                \
	X(TIMEOUT, "SPR_TIMEOUT", "30",                                                            \
	  "seconds until meeting, connecting or an operation gives up")                            \
	X(LANDING, "SPR_LANDING", "64M", "most landing memory of a communicator (K, M, G)")        \
	X(PROGRESS_THREAD, "SPR_PROGRESS_THREAD", "0",                                             \
	  "1: a thread of the library makes progress")                                             \
	X(ISA, "SPR_ISA", "", "most advanced instruction set to use: c, avx2, avx512")             \
	X(LOG, "SPR_LOG", "warn", "what the log hook gets: none, error, warn, info, debug")        \
	X(TRACE, "SPR_TRACE", "", "file for a trace of every chunk; each rank writes FILE.RANK")

#define SPRI_ENV_ENUM(id, name, value, meaning) SPRI_ENV_##id,
enum spri_env { SPRI_ENV_VARIABLES(SPRI_ENV_ENUM) SPRI_ENV_COUNT };
#undef SPRI_ENV_ENUM

struct spri_env_info {
	const char *name;
	const char *value; /* the default, as text */
	const char *meaning;
};

const struct spri_env_info *spri_env_info(enum spri_env variable);

/* What is set, or NULL when it is not set or empty. */
const char *spri_env_get(enum spri_env variable);

/*
 * Readers. Each returns 0 and writes *out (the fallback when the variable is not set), or
 * SPR_EENVIRONMENT with a text that names the variable, the value and what would be right.
 */
int spri_env_u64(enum spri_env variable, uint64_t min, uint64_t max, uint64_t fallback,
		 uint64_t *out, struct spri_text *text) SPRI_MUST;
/* A size: digits and an optional K, M or G (powers of 1024). */
int spri_env_bytes(enum spri_env variable, uint64_t min, uint64_t max, uint64_t fallback,
		   uint64_t *out, struct spri_text *text) SPRI_MUST;
/* Decimal seconds (fractions allowed), as nanoseconds, 1 ms to 10^6 s. */
int spri_env_seconds(enum spri_env variable, uint64_t fallback_ns, uint64_t *out_ns,
		     struct spri_text *text) SPRI_MUST;
/* The position of the value in `words` (NULL-terminated). */
int spri_env_word(enum spri_env variable, const char *const *words, int fallback, int *out,
		  struct spri_text *text) SPRI_MUST;

/*
 * Which of the ranks of this machine is this, of how many? SPR_LOCAL_RANK and SPR_LOCAL_SIZE, else
 * what a launcher's variables say (Open MPI, torchrun, MPICH, Slurm), else 0 of 1. *from is the
 * name of the variable, NULL when there is none. Returns 0; SPR_EENVIRONMENT with a text about
 * ours.
 */
int spri_env_local(uint32_t *rank, uint32_t *size, const char **from,
		   struct spri_text *text) SPRI_MUST;

/* The known SPR_* name nearest to `name` by edit distance, never NULL. */
const char *spri_env_nearest(const char *name);

/* Calls fn for every SPR_* variable that is set and not in the list. */
void spri_env_unknown(void (*fn)(void *arg, const char *name, const char *nearest), void *arg);

#endif
