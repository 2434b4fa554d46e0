/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The contract between the programs and user space: keys, values and names of the maps.
 *
 * A flow has two entries, one for each side of the gateway. Each side sees the flow as a pair of endpoints, `local`
 * (the LAN host, or the link's external address that represents it) and `remote`, so both sides are looked up by
 * the same code. Addresses are 16 bytes, with IPv4 mapped (::ffff:a.b.c.d). Times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef ANABRANCH_H
#define ANABRANCH_H

#include "choice.h"
#include "limits.h"
#include "marks.h"
#include "reasons.h"

/* The version of all pinned maps. Raised when the shape or meaning of one changes after a release (former.h). */
#define AB_ABI_VERSION 12

enum ab_family {
	AB_IPV4 = 0,
	AB_IPV6 = 1,
};

union ab_addr {
	__u8 byte[16];
	__u32 word[4];
};

/*
 * The side from which a key is seen: the LAN, or link i as AB_SIDE_LINK(i). All links without NAT are one side, because answers to
 * a host's own address may arrive over any of them.
 */
#define AB_SIDE_LAN 0
#define AB_SIDE_LINK(i) ((i) + 1)
#define AB_SIDE_ROUTED 0xff

/*
 * TCP keys are complete. UDP and ICMP echo mappings are endpoint-independent (RFC 4787 REQ-1, RFC 5508 REQ-1): their
 * `remote` is zero. A permission of such a mapping carries the remote address with port 0 (address-dependent
 * filtering, RFC 4787 REQ-8). ICMP echo uses the query id as local port.
 */
struct ab_flow_key {
	union ab_addr local;
	union ab_addr remote;
	__be16 local_port;
	__be16 remote_port;
	__u8 proto;
	__u8 side;
	__u16 zero;
} __attribute__((aligned(8))); /* built for every packet, so in words of 64 bits */

/* Bits of ab_flow.state, set atomically. Only the LAN entry of a flow gets CLOSED, and has a trace of its key in
 * the upper half (policy/trace.h). */
enum ab_state {
	AB_STATE_REPLIED = 1 << 0,   /* the remote end has answered */
	AB_STATE_CONFIRMED = 1 << 1, /* counted as confirmed, and no longer among its host's unconfirmed flows */
	AB_STATE_FIN_LOCAL = 1 << 2,
	AB_STATE_FIN_REMOTE = 1 << 3,
	AB_STATE_LAYER3 = 1 << 4,     /* the LAN host is behind a device without Ethernet; with VIA_ROUTER */
	AB_STATE_CLOSED = 1 << 5,     /* ended: counted as closed, kept for the transitory timer */
	AB_STATE_PERMISSION = 1 << 6, /* not a flow: a further remote address of a mapping */
	AB_STATE_VIA_ROUTER = 1 << 7, /* the LAN host is known by its address: it is behind a router of the LAN */
	AB_STATE_HAIRPIN = 1 << 8,    /* the remote is one of our external addresses */
	AB_STATE_SHARED = 1 << 9,     /* also counts against its LAN device */
	AB_STATE_LEAVING = 1 << 10,   /* LAN entry: about to be removed from the table */
	AB_STATE_APART = 1 << 11,     /* mapping for one remote end alone; its LAN key has the remote end */
	AB_STATE_CLASSED = 1 << 12,   /* also counts against its host's quota of the class */
	AB_STATE_ROUTED = 1 << 13,    /* over a link without NAT: its endpoint is that in the LAN */
	AB_STATE_PREFIX = 1 << 14,    /* over a link that translates only the prefix */
	AB_STATE_OUTSIDE = 1 << 15,   /* the remote end began, or an answer to it was the first that was seen */
};

struct ab_flow_tcp {
	__u32 isn; /* LAN entry: sequence number of its SYN, host order; link entry: number a SYN proxy acknowledged (tcp.h), or 0 */
	__u32 ack;   /* highest acknowledgement sent in this direction */
	__u32 end;   /* highest sequence number sent in this direction, plus one */
	__u32 tries; /* LAN entry: the other links its SYN took, policy/tries.h; link entry: when, paths.h */
};

struct ab_flow {
	__u64 opened_ns;
	__u64 seen_ns; /* last packet of this direction, at clock-tick resolution */
	__u64 packets; /* GSO segments counted one by one */
#ifndef AB_FORMER
	__u64 bytes; /* of IP packets */
#endif
	union ab_addr other_local; /* replaces the local address in this direction */
	struct ab_flow_tcp tcp;	   /* UDP, ICMP: the remote address that needs no permission entry, ab_first_remote() */
	__u32 state;		   /* enum ab_state */
	__u32 lan_ifindex;	   /* the LAN host's device */
	__be16 other_port;
	__be16 first_remote_port; /* UDP: for display; TCP: zero */
	__u16 tried;		  /* targets on which a SYN of this flow got no answer (WSDM), as ab_tried() */
	__u8 link;
	__u8 class;	   /* the class whose choice assigned it */
	__u8 why;	   /* enum ab_why of the choice */
	__u8 hairpin_link; /* TCP with AB_STATE_HAIRPIN: the link at whose ingress it reaches the other LAN host */
	__u8 mac[6];	   /* of the LAN host, or of the router it is behind */
	__u32 host; /* LAN entry: ab_host.id, ...; link entry, TCP: number of the latest SYN without an ACK that came for it, ... */
	__u32 unconfirmed; /* ... and its place in its host's order of such flows; ... and when, as ab_syn_sent(); 0: none has */
};

static inline union ab_addr *ab_first_remote(struct ab_flow *flow)
{
	return (union ab_addr *)&flow->tcp;
}

/*
 * The owner of flows, for quotas. A host on the LAN device's own prefix is identified by its MAC, whatever addresses it uses;
 * `address` is zero. A host behind a LAN router is identified by the router's MAC and its own address, of IPv6 the first half of
 * it. So is a host behind a device without Ethernet, with a MAC of zeroes. The share of a whole device has an entry of its own,
 * without a MAC and with all ones as address.
 */
struct ab_host_key {
	union ab_addr address;
	__u32 ifindex;
	__u8 mac[6];
	__u16 share; /* its flows in the class of one less; 0: the host as a whole */
};

/* The position of an unconfirmed flow among those of its host. The value is its LAN key. */
struct ab_unconfirmed_key {
	__u32 host;
	__u32 number; /* or AB_UNORDERED */
};

/*
 * The first few unconfirmed flows of a host have no position in the order, and are never evicted. Positions are a large part of the
 * cost of a connection, and a host that sends no flood needs none. Hosts share counters by their ids. All counters together allow
 * at most as many such flows as one host may have unconfirmed flows. If devices have shares, all flows have a position.
 */
#define AB_UNORDERED 0xffffffff
#define AB_UNORDERED_HOSTS 128

/* ---- written by user space, read by the programs ---- */

#define AB_RESERVED_MAX 16

enum ab_link_flags {
	AB_LINK_PRESENT = 1 << 0,	 /* device, address and gateway are known */
	AB_LINK_POINT_TO_POINT = 1 << 1, /* no neighbour to resolve: a layer-3 device */
	AB_LINK_INBOUND = 1 << 2,	 /* connections from the internet are allowed, by the prefix */
	AB_LINK_SHARES_SEGMENT =
		1 << 3, /* another link is on the same segment: its packets may arrive on either device */
};

/* The index of a link in arrays with an entry for each link and family. */
#define AB_LINK_PLACE(link, family) ((family)*AB_MAX_LINKS + (link))

/* A link for one family. */
struct ab_link {
	union ab_addr external;
	union ab_addr gateway;
	union ab_addr prefix; /* IPv6: replaces the LAN's prefix (RFC 6296) */
	__u32 prefix_len;     /* 0: there is none */
	__u32 ifindex;
	__u32 mtu;
	__u32 flags; /* enum ab_link_flags */
};

enum ab_role {
	AB_ROLE_NONE = 0,
	AB_ROLE_LAN = 1,
	AB_ROLE_LINK = 2,
};

/*
 * Devices are looked up for every packet, faster than in a hash table: a device is at the place of its index, or in one of the
 * next places if that is taken.
 */
#define AB_DEVICE_PLACES 256
#define AB_DEVICE_STEPS 8

struct ab_device {
	__u32 ifindex; /* 0: the place is free */
	__u16 link;
	__u8 role;			    /* enum ab_role */
	__u8 layer3;			    /* packets begin with the IP header */
	__u32 mtu;			    /* LAN: its own; link: the smallest of the LAN devices', 0 without one */
	union ab_addr address[AB_FAMILIES]; /* the sources of ICMP errors sent out of it */
};

/* Hardware addresses of devices on top of one of the gateway's devices, which also belong to this host. */
#define AB_OWN_MACS_MAX 256

struct ab_own_mac {
	__u32 ifindex; /* of the gateway's device */
	__u8 mac[6];
	__u16 zero;
};

/* What to do with destinations, and LAN sources, that have a more specific route than "the internet". Longest prefix first. */
enum ab_verdict {
	AB_VERDICT_KERNEL = 0, /* VPNs, learned routes: the kernel's own routing */
	AB_VERDICT_LAN = 1,    /* a LAN prefix: valid as source, the kernel's own routing as destination */
	AB_VERDICT_LINK = 2,   /* a specific route through one link */
	AB_VERDICT_LOCAL = 3,  /* an address of this host */
	AB_VERDICT_PREFIX = 4, /* a LAN network as seen beyond a link that translates prefixes */
};

struct ab_route_key {
	__u32 prefix_len; /* of the 128-bit address */
	union ab_addr addr;
};

struct ab_route {
	__u16 link;
	__u8 verdict; /* enum ab_verdict */
	__u8 zero;
	__u32 ifindex; /* LAN: its device; LOCAL: the LAN device that has the address, or zero */
	__u32 via; /* LAN, LINK: the router; zero if directly connected. PREFIX: the network of the LAN. A number of `next_hops` */
};

/* The metric of the default routes in our own tables. It identifies them in the kernel's answers. */
#define AB_OWN_METRIC 43776
/* Bits of ab_settings.routes_kernel. */
#define AB_ROUTES_FOREIGN 1
#define AB_ROUTES_BEYOND 2 /* the table has no room for all: destinations without an entry are left to the kernel */
#define AB_ROUTES_HIDDEN                                                                                               \
	8 /* of IPv6: a rule of others takes what the main table has no specific route for, see way.h */

struct ab_settings {
	__u64 tcp_established_ns;
	__u64 tcp_transitory_ns;
	__u64 udp_ns;
	__u64 icmp_ns;
	__u64 unconfirmed_ns;
	__u32 forwards_kernel; /* packets of no flow from a link may be forwards of the kernel, and are left to it */
	__u32 quota_per_host;  /* live flows of one LAN host */
	__u32 flows_max;       /* confirmed flows of all hosts; beyond that no flow is opened */
	__u16 port_min;	       /* external ports for NAT, both ends included, ... */
	__u16 port_max;
	__u16 ephemeral_min; /* ... without those of the host's own sockets */
	__u16 ephemeral_max;
	__u32 udp_filter_open;	      /* endpoint-independent filtering instead of address-dependent */
	__u32 fallback_mark;	      /* set on packets for the kernel's own NAT; 0: they are refused */
	__u32 unconfirmed_per_host;   /* unconfirmed flows of one LAN host; one more evicts its oldest */
	__u32 flows_per_device;	      /* live flows of one LAN device; 0: devices have no shares, there is only one */
	__u32 unconfirmed_per_device; /* unconfirmed flows of one LAN device */
	__u32 lan_sources_loose;      /* a LAN source may arrive from a LAN device other than that of its route */
	__u32 routed; /* links without NAT, as bits at AB_LINK_PLACE: the LAN's addresses are routed there */
	__u16 reserved[AB_RESERVED_MAX]; /* ports of the host that no flow gets; 0: none */
	/* Bits, AB_ROUTES_FOREIGN: rules or tables of others may apply to LAN traffic, so the kernel's routing is queried for
	 * each new flow. */
	__u32 routes_kernel;
	__u32 zero;
};

/* ---- written by the programs, read by user space ---- */

/* Per link and CPU, for each class and family. A class is contiguous, so that user space can read those in use at once. */
#define AB_TRAFFIC_PLACE(class, link, family) (((class) * AB_FAMILIES + (family)) * AB_MAX_LINKS + (link))

struct ab_traffic {
	__u64 tx_packets;
	__u64 tx_bytes;
	__u64 rx_packets;
	__u64 rx_bytes;
	__u64 rx_progress; /* TCP segments that acknowledge new data or the SYN: proof that both directions work */
	__u64 syn_retries; /* SYNs retransmitted on this link */
	/* Distinct hosts and remote addresses of these, each counted at most once in AB_WITNESS_NS. */
	__u64 retrying_hosts;
	__u64 retried_ends;
};

/* For a link and family: when hosts and remote addresses were last counted, in places by their hash. */
#define AB_WITNESSES 256
#define AB_WITNESS_NS 6000000000ull
/* Bits: which of the two is new. */
#define AB_WITNESS_HOST 1
#define AB_WITNESS_END 2

struct ab_witnesses {
	__u64 host_ns[AB_WITNESSES];
	__u64 end_ns[AB_WITNESSES];
};

/* Per LAN host, and per LAN device with a share. live = opened - closed; counted when a flow opens. Atomic. */
struct ab_host {
	__u64 opened;
	__u64 closed;
	__u64 opened_ns;	/* last attempt to open a flow */
	__u64 fallback_ns;	/* when its buckets for the kernel's NAT are full again: of new flows, ... */
	__u64 unknown_ns;	/* ... and of segments of unknown flows */
	__u32 id;		/* unique, also after the host was removed */
	__u32 unconfirmed_head; /* the next one's number in its order of unconfirmed flows */
	__u32 unconfirmed_tail; /* none in that order has a lower number */
	__u32 unconfirmed;	/* of a device: unconfirmed flows, including those that have ended */
	__u32 mappings;		/* live UDP and ICMP mappings, each with an external port of its own */
	__u32 permissions;	/* further remote addresses of its mappings */
};

/* A destination prefix: a /24 of IPv4, a /48 of IPv6. Its addresses are assumed to be at the same place. */
struct ab_prefix {
	__u8 byte[6]; /* of IPv4 the first three */
	__u8 family;  /* enum ab_family */
	__u8 zero;
};

/* Measurements of a prefix over one link: see policy/paths.h. */
struct ab_path {
	__u64 learned_ns;  /* last measurement; 0: none */
	__u64 asked_ns;	   /* when a flow was last sent only to measure; 0: never */
	__u32 response_us; /* from SYN to SYN/ACK, smoothed */
	__u16 samples;	   /* SYNs answered, ... */
	__u16 failures;	   /* ... and retransmitted without an answer; 65535 may be more */
};

struct ab_paths {
	struct ab_path path[AB_MAX_LINKS];
};

/* The links to a prefix over which a host has retransmitted a SYN without an answer, since the first of them. */
struct ab_silence {
	__u64 since_ns; /* 0: none */
	__u32 links;	/* as bits */
	__u32 zero;
};

/* A losing try of a connection attempt that is decided. */
struct ab_losing_copy {
	__u32 isn;   /* of its SYN */
	__u32 class; /* of its flow */
	__u32 sent;  /* as ab_syn_sent(), if another answer came first; 0: its answer measures nothing */
};

/* A new connection of a class that surveys its destinations. */
struct ab_opened {
	union ab_addr remote;
	__be16 remote_port;
	__u8 class;
	__u8 zero[5];
};

/* A probe of such a destination, and how its answer will be recognised. */
struct ab_question_key {
	union ab_addr remote;
	__be16 remote_port;
	__be16 local_port;
	__u32 link;
};

struct ab_question {
	__u32 number; /* of the RST that answers it, host order */
	__u32 sent;   /* as ab_syn_sent() */
	__u32 class;  /* whose lifetime applies */
	__u32 zero;
};

/* Per class, monotonic, atomic. live = opened - closed. */
struct ab_class {
	__u64 opened;
	__u64 closed;
	__u64 dropped; /* packets that opened no flow because the class had no link */
	__u64 refused; /* the same because of its quota */
};

#define AB_CLASS_NAME_MAX 32

/* The names of classes, so that the next process gives each class the number that its flows have. */
struct ab_class_name {
	__u8 text[AB_CLASS_NAME_MAX]; /* zeroes: the number is free */
};

/* Counts of the tables as a whole, atomic and monotonic: confirmed flows = confirmed - forgotten. */
struct ab_table {
	__u64 confirmed;
	__u64 forgotten;
	__u64 evicted;	   /* unconfirmed flows evicted for others of their host */
	__u64 hosts;	   /* ids given to hosts */
	__u64 fallback_ns; /* as ab_host.fallback_ns, for all hosts */
	__u64 secret;	   /* of recent.h */
};

/* A host without live flows is forgotten this long after its last attempt to open one. */
#define AB_HOST_IDLE_NS 5000000000ull

/* If no port is free for a mapping on a link, no port is searched there for it for this long. */
#define AB_FULL_NS 1000000000ull

/* Maximum number of flows in one call of `sweep_flows` or `end_link`. */
#define AB_VISIT_MAX 512
struct ab_visit {
	struct ab_flow_key key[AB_VISIT_MAX];
};

/* When the table is nearly full, closed flows keep their entries only this long, for the last segments. */
#define AB_PRESSED_CLOSED_NS 1000000000ull

/*
 * Arguments and results of `sweep_flows`, which user space runs and which is not attached to a device: first for flows that may
 * have expired, as often as there are any, then once for the hosts.
 */
struct ab_sweep {
	__u64 expired;	/* flows removed because their timer expired */
	__u32 count;	/* in: keys to visit */
	__u32 pressure; /* in: remove closed flows at once, not after the transitory timer */
	__u32 is_last;	/* in: remove hosts without flows as well */
	__u32 zero;
};

/* Arguments and results of `end_link`, which is run as often as there are flows to end. */
struct ab_ending {
	__u64 ended;		/* live flows */
	__u64 opened_before_ns; /* in: keep flows opened later */
	__u64 seen_before_ns;	/* in: keep flows with a later packet */
	__u64 classes;		/* in: keep flows of other classes; bit c: class c */
	__u32 link;		/* in: the link whose flows end */
	__u32 families;		/* in: keep flows of other families; bit f: family f */
	__u32 count;		/* in: keys to visit */
	__u32 unfinished;	/* the ring was full: run again */
};

/* An upgrade (gateway/former.h): what user space says about it, and the arguments and results of `migrate`, which is run as often
 * as there are entries in the former tables. */
struct ab_upgrade {
	__u64 flows;	   /* taken over by it, or already ended */
	__u64 permissions; /* the same for permissions */
	__u32 count;	   /* in: keys to visit */
	__u32 taken;	   /* the new programs handle the packets */
};

/* A TCP flow that ended with its link, with the data for a RST towards the LAN. */
struct ab_ended {
	union ab_addr local;
	union ab_addr remote;
	__be16 local_port;
	__be16 remote_port;
	__u32 seq; /* what the LAN host expects next */
	__u32 ack;
	__u32 lan_ifindex;
};

/* The result of `explain`, written over the packet of the question. */
struct ab_explanation {
	__u8 reason; /* enum ab_reason */
	__u8 why;    /* enum ab_why */
	__u16 link;  /* AB_NO_TARGET: the kernel decides */
	__u32 hash;
	__u16 bound; /* the flow exists already */
	__u16 class;
	__u32 count;  /* number of links with the following values, ... */
	__u64 usable; /* ... of which these take new flows */
	__u32 weight[AB_MAX_LINKS];
	__u32 load[AB_MAX_LINKS];
	__u32 response_us[AB_MAX_LINKS]; /* for the destination's prefix, of links ... */
	__u32 fresh;			 /* ... whose bits are set */
	__u32 zero;
};

#endif
