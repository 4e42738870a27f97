/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The whole public API. Start at context.h; docs/examples has programs. */
#ifndef SPARRING_SPARRING_H
#define SPARRING_SPARRING_H

#include <sparring/coll.h>
#include <sparring/comm.h>
#include <sparring/context.h>
#include <sparring/endpoint.h>
#include <sparring/error.h>
#include <sparring/exchange.h>
#include <sparring/info.h>
#include <sparring/memory.h>
#include <sparring/request.h>
#include <sparring/sim.h>
#include <sparring/topology.h>
#include <sparring/types.h>

#endif
