/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* All maps of a member. */
#ifndef ANABRANCH_MEMBER_MAPS_H
#define ANABRANCH_MEMBER_MAPS_H

#include "../../include/member.h"
#include "../../policy/inline.h"
#include "../packet/map.h"

AB_MAP(member_settings, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_member, 0);
AB_MAP(member_addresses, BPF_MAP_TYPE_HASH, AB_MEMBER_ADDRESSES_MAX, union ab_addr, struct ab_member_address,
       BPF_F_NO_PREALLOC);
/* Of balancers. The values have no meaning. */
AB_MAP(member_sources, BPF_MAP_TYPE_HASH, AB_MEMBER_ADDRESSES_MAX, union ab_addr, __u32, BPF_F_NO_PREALLOC);
AB_MAP(member_reasons, BPF_MAP_TYPE_PERCPU_ARRAY, AB_MEMBER_REASON_COUNT, __u32, __u64, 0);

#endif
