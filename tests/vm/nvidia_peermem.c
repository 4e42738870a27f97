/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A kernel module of this name for the guest machine, which does nothing: there the memory of the
 * stand-in's GPU is the host's, and rxe needs no help to find its pages.
 */
#include <linux/module.h>

MODULE_DESCRIPTION("nothing, under the name of the module that tells NICs of GPU memory");
MODULE_LICENSE("GPL");
