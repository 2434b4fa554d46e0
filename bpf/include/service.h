/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The contract of the service programs: servers behind virtual addresses. A service chooses among its servers as a class of the
 * gateway does among links, by an ab_choice whose targets are the servers. Times are CLOCK_MONOTONIC nanoseconds.
 *
 * A connection is one of TCP, or the datagrams of UDP between a client's endpoint and a virtual one. It has one entry: in the key,
 * `local` is the virtual endpoint and `remote` the client. What a server sends leads there, too, because of each server's endpoint it
 * is known for which virtual ones it answers.
 *
 * A connection whose server answers the client itself is followed by what the client sends, in a table of its own with shorter
 * entries.
 */
#ifndef ANABRANCH_SERVICE_H
#define ANABRANCH_SERVICE_H

#include "anabranch.h"
#include "choice.h"
#include "rules.h"

/* The version of its pinned maps. */
#define AB_SERVICE_ABI_VERSION 3

#define AB_MAX_SERVICES 64

/* Values of ab_flow_key.side: which table the key is of. */
#define AB_SIDE_NAT 0
#define AB_SIDE_DIRECT 1

/* The virtual address, protocol and port of a service. A range of ports is some prefixes of them, so the port is last. The value is
 * the number of the service. */
struct ab_virtual {
	union ab_addr address;
	__u8 proto;
	__u8 zero;
	__be16 port;
};
#define AB_VIRTUAL_BITS (8 * sizeof(struct ab_virtual))

enum ab_server_flags {
	AB_SERVER_POINT_TO_POINT = 1 << 0, /* its device has no Ethernet: no neighbour to resolve */
	/* User space keeps these for its next process; the programs read the choice alone. */
	AB_SERVER_DRAINED = 1 << 1, /* somebody has ordered that it takes no new connections */
	AB_SERVER_FAILED = 1 << 2,  /* its check says that it does not work */
	/* `sweep_connections` reads this one. */
	AB_SERVER_DEAD = 1 << 3,   /* its connections end */
	AB_SERVER_DIRECT = 1 << 4, /* it has the virtual address, too, and answers its clients itself */
	AB_SERVER_TUNNEL = 1 << 5, /* ... and gets packets inside of others, as it may be behind a router */
};

/* A server, at AB_SERVER_PLACE. It keeps its place as long as it has connections. */
struct ab_server {
	union ab_addr address;
	union ab_addr next_hop;
	union ab_addr source; /* of the tunnel: ours */
	__u32 ifindex;	      /* 0: it has no route */
	__be16 port;	      /* 0: the one that the client called */
	__u16 flags;	      /* enum ab_server_flags */
	__be16 gue_port;      /* of the tunnel, if it is of UDP; else 0 */
	__u16 zero;
	__u32 limit;	     /* open connections at most; 0: as many as there are */
	__u64 opened_before; /* connections of former servers at this place, for display */
};
#define AB_SERVER_PLACE(service, target) ((service)*AB_MAX_TARGETS + (target))
#define AB_SERVERS_MAX (AB_MAX_SERVICES * AB_MAX_TARGETS)

/*
 * What the connections of a server show of it. It keeps somebody waiting while `asked_ns` is after `heard_ns`. Others can bring this
 * about too, by SYNs that never reach the server, so it is a reason to test the server and no proof. A server that answers clients
 * itself is asked by SYNs alone, and heard when a client goes on from its own.
 */
struct ab_evidence {
	__u64 asked_ns; /* a SYN or data was sent to it; like the next at clock-tick resolution */
	__u64 heard_ns; /* its first packet since then */
	__u64 repeated; /* SYNs that were sent again before it answered */
	__u64 refused;	/* SYNs that it answered by a RST */
};

/* By place. */
struct ab_evidences {
	struct ab_evidence target[AB_MAX_TARGETS];
};

/* Connections of a service: of each server, and of all clients of a family. */
struct ab_service_gauges {
	struct ab_gauges of;
	struct ab_gauge all[AB_FAMILIES];
};

/* What a server has done, at AB_SERVER_PLACE, for each CPU. */
struct ab_meter {
	__u64 sent_bytes;
	__u64 answers;	    /* requests that it has begun to answer */
	__u64 answering_us; /* ... and how long that took, in all */
};

/* The index of the choice of a service for clients of a family. */
#define AB_SERVICE_CHOICE(service, family) ((family)*AB_MAX_SERVICES + (service))

/* What the hashes of a service are keyed by. */
struct ab_secret {
	__u64 word[2];
};
/* Of what is hashed: two addresses, and the ports. */
#define AB_KEYED_WORDS 5

/* What becomes of a packet that belongs to no known connection and opens none. */
enum ab_unknown {
	AB_UNKNOWN_HOST = 0, /* it is left to the host */
	AB_UNKNOWN_DROP = 1,
	AB_UNKNOWN_HASH = 2, /* it goes to the server to which its hash leads */
	AB_UNKNOWN_PEER = 3, /* the same, but to the former owner of its row if that changed lately */
};

/* Bits of ab_service_settings.kinds. */
#define AB_CONNECTIONS_NAT (1 << 0)
#define AB_CONNECTIONS_DIRECT (1 << 1)

/* The settings of a service beside its choice. */
struct ab_service_settings {
	__u64 former_until_ns; /* the rows as they were before they changed count until then */
	__u32 insert_limit;    /* connections a second that get entries; 0: as many as there is room for */
	__u16 unknown;	       /* enum ab_unknown */
	__u16 kinds;	       /* of which its connections may be, as bits */
	__u32 client_limit;    /* established connections of TCP of each client; 0: as many as there are */
	__u32 zero;
};

/* A client of a service, of IPv6 its network of 64 bits: one host may have all of its addresses. */
struct ab_client {
	union ab_addr address;
	__u32 service;
};
/* How many are counted where there is a limit. Those beyond have none. */
#define AB_CLIENTS_MAX (1 << 17)

/* The place of the rows of AB_UNKNOWN_HASH and AB_UNKNOWN_PEER, and of the former ones, for a AB_SERVICE_CHOICE. */
#define AB_SERVICE_ROWS(choice, former) ((choice) + (former)*AB_MAX_SERVICES * AB_FAMILIES)

/* A virtual endpoint as which a server's endpoint answers. */
struct ab_alias {
	union ab_addr address;
	__be16 port; /* 0: that of the server */
	__u8 service;
	__u8 is_direct; /* the server answers itself now */
};
/* More would make each answer slower. */
#define AB_ALIASES_MAX 8
/* All of a server's endpoint; the key is like that of a virtual endpoint. */
struct ab_answering {
	__u32 count;
	struct ab_alias alias[AB_ALIASES_MAX];
};

/* Bits of the state of a connection. Set atomically; none but the last is cleared. */
enum ab_connection_state {
	AB_CONNECTION_ANSWERED = 1 << 0,    /* the server has sent its SYN/ACK, or a datagram */
	AB_CONNECTION_ESTABLISHED = 1 << 1, /* the client has sent another segment or datagram since */
	AB_CONNECTION_FIN_CLIENT = 1 << 2,
	AB_CONNECTION_FIN_SERVER = 1 << 3,
	AB_CONNECTION_CLOSED = 1 << 4, /* by both ends, or reset: counted as closed, and kept for late segments */
	AB_CONNECTION_GONE = 1 << 5,   /* one CPU is about to delete the entry */
};

/* With its key and what the kernel keeps in front it takes three cache lines, of which the last is what packets change. */
struct ab_connection {
	/* Seldom changed. */
	__u32 ifindex;	   /* of the device from which the client's packets come */
	__u8 ethernet[12]; /* of these packets: our hardware address, then the client's or its router's */
	__u16 service;
	__u16 server;
	__u8 layer3; /* the device has no Ethernet */
	__u8 zero[3];
	__u32 state; /* enum ab_connection_state */
	__u32 turn;  /* among those that may have to make room */

	/* At clock-tick resolution. */
	__u64 client_seen_ns; /* last packet of the client by its way */
	__u64 server_seen_ns;
	__u32 confirmed; /* what the client's last request has acknowledged */
	__u32 end;	 /* highest sequence number that the server has sent, plus one */
	__u32 ack;	 /* the client's next byte, by what the server has acknowledged */
	__u32 asked;	 /* when the request came that the server has not answered, in microseconds; 0: there is none */
};

/* A connection whose server answers itself. Small, because with its key it then fits the kernel's pieces of 128 bytes. */
struct ab_direct {
	__u64 seen_ns;
	__u32 state; /* enum ab_connection_state, and above them the server, as AB_SERVER_PLACE */
	__u32 turn;
	__u32 end; /* highest sequence number that the client has sent, plus one */
	__u32 zero;
};
#define AB_DIRECT_SERVER_SHIFT 16
#define AB_CONNECTION_BITS ((1u << AB_DIRECT_SERVER_SHIFT) - 1)

/* A connection that is not established, or over: at the next of its places another takes over. */
struct ab_passing {
	struct ab_flow_key key;
	__u32 turn;
	__u32 zero;
};
/* So many SYNs come in 1.3 s of a flood of 200 000 a second: longer than a client takes to acknowledge an answer, also by satellite.
 * Tests that fill it define another. */
#ifndef AB_PASSING_MAX
#define AB_PASSING_MAX (1 << 18)
#endif

/* Connections expire after this time without a packet: RFC 5382 REQ-5, and for an unanswered one the time after which Linux stops
 * sending SYN/ACKs. */
#define AB_CONNECTION_UNCONFIRMED_NS 60000000000ull
#define AB_CONNECTION_CLOSED_NS 60000000000ull
#define AB_CONNECTION_IDLE_NS 7440000000000ull
/* UDP: as the kernel's connection tracking. Most clients use a port for one question and one answer. */
#define AB_CONNECTION_UDP_UNCONFIRMED_NS 30000000000ull
#define AB_CONNECTION_UDP_IDLE_NS 180000000000ull
/* A datagram proves nothing about its sender. So an answered client's way changes only after it has been silent for this time. */
#define AB_CONNECTION_UDP_WAY_NS 10000000000ull

/* Arguments and results of `sweep_connections`, which user space runs and which is not attached to a device. */
struct ab_service_sweep {
	__u64 expired; /* connections removed */
	__u32 count;   /* in: keys to visit */
	__u32 zero;
};

/* Every way a packet can leave the service programs: X(name, fate, words). Those without a server are in the order of enum ab_without. */
#define AB_SERVICE_REASONS(X)                                                                                          \
	X(TO_SERVER, SENT, "client's packet sent to its server")                                                       \
	X(TO_CLIENT, SENT, "server's packet sent to its client")                                                       \
	X(NOT_OURS, PASSED, "of no service")                                                                           \
	X(NO_CONNECTION, PASSED, "for a service and of no connection: left to the host")                               \
	X(UNKNOWN, DROPPED, "for a service and of no connection: dropped")                                             \
	X(TOO_MANY, DROPPED, "opens a connection above the service's limit of new ones")                               \
	X(CLIENT_FULL, DROPPED, "its client has as many connections as the service's limit for each client")           \
	X(HASHED, SENT, "client's packet sent to the server of its hash, without an entry")                            \
	X(FORMER, SENT, "client's packet sent to the former server of its hash, without an entry")                     \
	X(ALIASED, SENT, "server's packet sent to its client, without an entry")                                       \
	X(NO_SERVER_REFUSED, REFUSED, "no server takes new connections: refused")                                      \
	X(NO_SERVER_DROPPED, DROPPED, "no server takes new connections: dropped")                                      \
	X(NO_SERVER, PASSED, "no server takes new connections: left to the host")                                      \
	X(FULL_REFUSED, REFUSED, "every server that takes new connections has as many as its limit: refused")          \
	X(FULL_DROPPED, DROPPED, "every server that takes new connections has as many as its limit: dropped")          \
	X(FULL, PASSED, "every server that takes new connections has as many as its limit: left to the host")          \
	X(ERROR_TO_SERVER, SENT, "ICMP error about a server's packet sent to it")                                      \
	X(ERROR_TO_CLIENT, SENT, "ICMP error about a client's packet sent to it")                                      \
	X(TOO_BIG, REFUSED, "longer than the MTU of the next device: its sender is told")                              \
	X(BAD_ERROR, DROPPED, "ICMP error about no packet under way, or with a wrong checksum")                        \
	X(BAD_FRAGMENT, DROPPED, "fragment that overlaps another of its datagram")                                     \
	X(TTL, DROPPED, "for a service, and may make no further hop")                                                  \
	X(NO_WAY, DROPPED, "nothing leads to the server")                                                              \
	X(PORT_TAKEN, DROPPED, "its client talks to that server from the same port by another service")                \
	X(TABLE_FULL, DROPPED, "the table of connections is full")                                                     \
	X(UNSENT, DROPPED, "kernel helper refused to rewrite or send")

enum ab_service_reason {
#define AB_SERVICE_REASON_ENUM(name, fate, words) AB_SERVICE_REASON_##name,
	AB_SERVICE_REASONS(AB_SERVICE_REASON_ENUM)
#undef AB_SERVICE_REASON_ENUM
		AB_SERVICE_REASON_COUNT,
};

#endif
