// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The gateway with the former contract (include/former.h), for the tests of upgrades only. It is not installed. */
#define AB_FORMER
#include "gateway.bpf.c"
