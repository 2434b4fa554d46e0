/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The keys that user space asks a sweeping program about. */
#ifndef ANABRANCH_VISIT_H
#define ANABRANCH_VISIT_H

#include "../include/anabranch.h"

struct ab_visit {
	struct ab_flow_key key[AB_VISIT_MAX];
};

#endif
