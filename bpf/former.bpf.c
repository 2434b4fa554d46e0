// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The gateway of the former contract (include/former.h), for the tests of upgrades: nothing that is installed has it. */
#define AB_FORMER
#include "gateway.bpf.c"
