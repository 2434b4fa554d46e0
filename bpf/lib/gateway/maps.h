/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* All maps of the gateway. */
#ifndef ANABRANCH_MAPS_H
#define ANABRANCH_MAPS_H

#include "../../include/anabranch.h"
#include "../../include/rules.h"
#include "../../policy/inline.h"
#include "../packet/map.h"

/* User space sets the sizes of `flows`, `unconfirmed_order`, `permissions` and `hosts` before loading. */
AB_MAP(flows, BPF_MAP_TYPE_HASH, 2, struct ab_flow_key, struct ab_flow, BPF_F_NO_PREALLOC);
AB_MAP(permissions, BPF_MAP_TYPE_HASH, 1, struct ab_flow_key, struct ab_flow, BPF_F_NO_PREALLOC);
AB_MAP(unconfirmed_order, BPF_MAP_TYPE_HASH, 1, struct ab_unconfirmed_key, struct ab_flow_key, 0);
AB_MAP(unordered, BPF_MAP_TYPE_ARRAY, AB_UNORDERED_HOSTS, __u32, __u32, 0);
AB_MAP(hosts, BPF_MAP_TYPE_HASH, 1, struct ab_host_key, struct ab_host, BPF_F_NO_PREALLOC);

/*
 * The link of a session, or of a LAN address. A host has a number of places of its own, in rows, for which the sessions of all its
 * addresses compete. Its sessions do not displace those of other hosts before as many hosts as the table has room for fill all
 * their places.
 */
#define AB_SESSION_ROWS 64 /* of a host */
#define AB_SESSION_PLACES 16
struct ab_session_key {
	struct ab_host_key host;
	__u32 row;
};
struct ab_sessions {
	__u64 place[AB_SESSION_PLACES]; /* policy/session.h; 0: free */
};
AB_MAP(sessions, BPF_MAP_TYPE_LRU_HASH, 8192, struct ab_session_key, struct ab_sessions, 0);

/* When a link was last found to have no free port, by what the port was for. */
#define AB_FULLNESS_SLOTS 64
struct ab_fullness {
	__u64 found_ns; /* the latest of all entries */
	__u64 link_ns[AB_MAX_LINKS];
};
AB_MAP(fullness, BPF_MAP_TYPE_ARRAY, AB_FULLNESS_SLOTS, __u32, struct ab_fullness, 0);

AB_MAP(settings, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_settings, 0);
AB_MAP(rules, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_rules, 0);
/* The choices, indexed by class and family. */
AB_MAP(choice, BPF_MAP_TYPE_ARRAY, AB_MAX_CLASSES *AB_FAMILIES, __u32, struct ab_choice, 0);
AB_MAP(turn, BPF_MAP_TYPE_ARRAY, AB_MAX_CLASSES, __u32, __u32, 0); /* choices made so far, for AB_DISPATCH_TURNS */
AB_MAP(classes, BPF_MAP_TYPE_ARRAY, AB_MAX_CLASSES, __u32, struct ab_class, 0);
AB_MAP(class_names, BPF_MAP_TYPE_ARRAY, AB_MAX_CLASSES, __u32, struct ab_class_name, 0);

AB_MAP(consistent, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_consistent, 0);
AB_MAP(links, BPF_MAP_TYPE_ARRAY, AB_MAX_LINKS *AB_FAMILIES, __u32, struct ab_link, 0);
AB_MAP(devices, BPF_MAP_TYPE_ARRAY, AB_DEVICE_PLACES, __u32, struct ab_device, 0);
AB_MAP(routes, BPF_MAP_TYPE_LPM_TRIE, AB_ROUTES_MAX, struct ab_route_key, struct ab_route, BPF_F_NO_PREALLOC);
/* Next hops have numbers, because few of them differ: an entry of the routes is 16 bytes shorter, and takes 64 bytes of the
 * kernel's memory instead of 96. */
AB_MAP(next_hops, BPF_MAP_TYPE_ARRAY, AB_NEXT_HOPS_MAX, __u32, union ab_addr, 0);

AB_MAP(traffic, BPF_MAP_TYPE_PERCPU_ARRAY, AB_MAX_CLASSES *AB_MAX_LINKS *AB_FAMILIES, __u32, struct ab_traffic, 0);
AB_MAP(witnesses, BPF_MAP_TYPE_ARRAY, AB_MAX_LINKS *AB_FAMILIES, __u32, struct ab_witnesses, 0);
AB_MAP(reasons, BPF_MAP_TYPE_PERCPU_ARRAY, AB_REASON_COUNT, __u32, __u64, 0);
AB_MAP(gauges, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_gauges, 0);
AB_MAP(table, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_table, 0);
AB_MAP(sweeping, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_sweep, 0);
AB_MAP(ending, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_ending, 0);

AB_MAP(visits, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_visit, 0); /* for sweeps */
AB_MAP(doomed, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_visit, 0); /* for a link that ends */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16); /* room for two visits */
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} ended SEC(".maps");

/* A flow that may be opened: its opener, and the search for its link and port. */
struct ab_opening {
	__u8 mac[6];	   /* source */
	__u8 via_router;   /* the source is identified by its address, because it is behind a router of the LAN, ... */
	__u8 layer3;	   /* ... or a device without Ethernet */
	__u8 is_hairpin;   /* the destination is one of our external addresses, ... */
	__u8 is_answer;	   /* ... and the packet a SYN/ACK from the endpoint that was called; TCP, as the next */
	__u8 hairpin_link; /* ab_flow.hairpin_link */
	__u8 class;	   /* of the flow, and whose choice is made */
	__u8 is_apart;	   /* AB_STATE_APART */
	__u8 is_classed;   /* AB_STATE_CLASSED */
	__u8 keeps_port;   /* AB_STATE_ROUTED or AB_STATE_PREFIX */
	__u8 joins;	   /* what it opens has begun elsewhere: over a link without NAT, or not at all */
	__u8 waited;	   /* its SYN has waited for a probe, in vain */
	__u16 asked_link;  /* link by whose prefix the remote end began; AB_NO_TARGET: it did not */
	__u16 kept_link;   /* link and port of the LAN endpoint's external endpoint; AB_NO_TARGET: none */
	__be16 kept_port;
	__u32 lan_ifindex;    /* device of the source's route */
	union ab_addr remote; /* destination, ... */
	__be16 remote_port;   /* ... and port */
	__u16 family;	      /* enum ab_family */
	__u32 tried;	      /* links that failed the flow already (WSDM), as ab_tried() */
	__u64 full;	      /* links without a port, ... */
	__u32 failed;	      /* ... and how many of them were tried */
	__u32 first_port;     /* first candidate port */
	__u32 reason;	      /* 0: found */
	__u64 now;
	__u32 sent;    /* when its SYN takes a link, as ab_syn_sent(); 0: it measures nothing */
	__u32 surveys; /* reported to user space */
};

/* A remote end that sent by a link's prefix, and the LAN host that it sent to (prefix.h). */
struct ab_asked_key {
	union ab_addr local;
	union ab_addr remote;
	__be16 local_port;
	__be16 remote_port;
	__u32 proto;
};

/* Both ends of a packet, to look up a socket. */
struct endpoints {
	union ab_addr src, dst;
	__be16 sport, dport;
};

/*
 * The packet's flow at hand, which one function looks for and the next opens, moves or ends: per CPU, since it does not fit the
 * 512-byte stack. Everywhere it is `s`. A job that passes nothing on has a room of its own in its header. Of what stays together
 * here, three belong to single jobs, whose own rooms cost the verifier more: `host` 4.7 % of the instructions of `lan`, `ends`
 * 3.5 %, `bytes` 4.8 % and 12 % of `wan`. Programs of one CPU never interleave: TC runs with bottom halves disabled.
 */
struct flow_room {
	struct ab_flow_key lan_key, wan_key;
	struct ab_flow lan, wan;
	struct ab_host_key host_key;
	struct ab_host host;
	struct ab_opening opening;
	struct ab_request request;
	struct ab_decision decision;
	struct ab_flow_key evicted_lan_key, evicted_wan_key;
	struct ab_flow_key endpoint_key, called_key, race_copy_key, held_key;
	struct endpoints ends; /* for a look-up of a socket */
	struct ab_asked_key asked;
};
AB_SCRATCH(flow_room, struct flow_room)

static __always_inline const struct ab_settings *current_settings(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&settings, &zero);
}

static __always_inline const struct ab_choice *choice_of(__u32 class, __u32 family)
{
	__u32 place = AB_CHOICE_PLACE(class, family);
	return bpf_map_lookup_elem(&choice, &place);
}

static __always_inline struct ab_gauges *all_gauges(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&gauges, &zero);
}

static __always_inline const struct ab_device *device_at(__u32 ifindex, __u32 step)
{
	__u32 place = (ifindex + step) % AB_DEVICE_PLACES;
	const struct ab_device *device = bpf_map_lookup_elem(&devices, &place);
	return device && device->ifindex == ifindex ? device : NULL;
}

static __noinline const struct ab_device *find_displaced(__u32 ifindex)
{
	for (__u32 step = 1; step < AB_DEVICE_STEPS; step++) {
		const struct ab_device *device = device_at(ifindex, step);
		if (device)
			return device;
	}
	return NULL;
}

static __always_inline const struct ab_device *device_of(__u32 ifindex)
{
	const struct ab_device *device = device_at(ifindex, 0);
	return device ? device : find_displaced(ifindex);
}

static __always_inline const struct ab_link *link_at(__u32 index, __u32 family)
{
	__u32 place = AB_LINK_PLACE(index, family);
	return bpf_map_lookup_elem(&links, &place);
}

/* The links without NAT, as bits. */
static __always_inline __u32 routed_links(const struct ab_settings *set, __u32 family)
{
	return set->routed >> AB_LINK_PLACE(0, family & 1) & ((1u << AB_MAX_LINKS) - 1);
}

static __always_inline int is_routed(const struct ab_settings *set, __u32 link, __u32 family)
{
	return routed_links(set, family) >> (link & (AB_MAX_LINKS - 1)) & 1;
}

/* The side in the keys of flows over a link. */
static __always_inline __u8 side_of_link(__u32 link, __u32 family)
{
	const struct ab_settings *set = current_settings();
	return set && is_routed(set, link, family) ? AB_SIDE_ROUTED : AB_SIDE_LINK(link);
}

#endif
