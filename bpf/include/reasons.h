/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Every way a packet can leave the programs: one counter each, shown by `anabranch status`. */
#ifndef ANABRANCH_REASONS_H
#define ANABRANCH_REASONS_H

/* AB_SENT: forwarded by the program. AB_PASSED: left to the kernel's stack. AB_DROPPED: dropped. AB_REFUSED: answered with an
 * error. */
enum ab_fate {
	AB_SENT = 0,
	AB_PASSED = 1,
	AB_DROPPED = 2,
	AB_REFUSED = 3,
};

/* AB_PASSED with an instruction for the kernel: NAT, or only if it knows the connection. */
#define AB_FATE_MASK 3
#define AB_TO_NAT (AB_PASSED | 4)
#define AB_STRAY_TO_NAT (AB_PASSED | 8)

/* X(name, fate, words) */
#define AB_REASONS(X)                                                                                                  \
	X(TRANSLATED_OUT, SENT, "flow packet sent over its link")                                                      \
	X(TRANSLATED_IN, SENT, "flow packet sent to the LAN")                                                          \
	X(ERROR_OUT, SENT, "ICMP error of a flow sent over its link")                                                  \
	X(ERROR_IN, SENT, "ICMP error of a flow sent to the LAN")                                                      \
	X(ROUTED_OUT, SENT, "packet of no flow sent over a link without NAT")                                          \
	X(PREFIX_OUT, SENT, "answer of no flow sent over the link by whose prefix its host was asked")                 \
	X(PROBE_OUT, SENT, "probe sent over a link in the place of a SYN, which waits")                                \
	X(HAIRPIN, SENT, "LAN host to LAN host by external address")                                                   \
	X(HAIRPIN_SYN, SENT, "SYN of a LAN host to another's external address, of no flow of the other's yet")         \
	X(CHALLENGE, SENT, "answer to a SYN that acknowledges another number, which the LAN host resets")              \
	X(NOT_IP, PASSED, "neither IPv4 nor IPv6")                                                                     \
	X(TAGGED, PASSED, "carries a VLAN tag: another device's")                                                      \
	X(OTHER_HOST, PASSED, "frame for another machine's hardware address")                                          \
	X(LOOPED_BACK, PASSED, "copy of a multicast that this host has sent itself")                                   \
	X(OTHER_PROTOCOL, PASSED, "from a link to the host itself: neither TCP, UDP nor ICMP")                         \
	X(SPECIFIC_ROUTE, PASSED, "destination is local or has a specific route")                                      \
	X(ROUTING_RULES, PASSED, "the host's routing rules send it another way than over a link")                      \
	X(NO_FLOW_IN, PASSED, "from a link to the host itself")                                                        \
	X(ROUTED_IN, PASSED, "from a link without NAT to the LAN, for no flow: the kernel routes it")                  \
	X(PREFIX_IN, PASSED, "from a link to the LAN by its prefix, for no flow: the kernel routes it")                \
	X(TRANSIT_IN, PASSED, "from a link to an address that is neither the host's nor the LAN's")                    \
	X(DHCP, PASSED, "from a DHCP server: for a client of the host, whose address may not be there yet")            \
	X(NO_LAN_ADDRESS, PASSED, "from a LAN device that has no address yet")                                         \
	X(FORWARD_IN, PASSED, "from a link for no flow: perhaps a forward of the kernel's")                            \
	X(FORWARD_OUT, PASSED, "LAN answer for no flow: perhaps to a forward of the kernel's")                         \
	X(FALLBACK_QUOTA, TO_NAT, "host over its quota: kernel NAT")                                                   \
	X(FALLBACK_FULL, TO_NAT, "flow table full: kernel NAT")                                                        \
	X(FALLBACK_PORTS, TO_NAT, "no external port free: kernel NAT")                                                 \
	X(FALLBACK_CLASS, TO_NAT, "no usable link of its class: kernel NAT")                                           \
	X(FALLBACK_UNKNOWN, TO_NAT, "TCP segment of an unknown flow: perhaps of the kernel's NAT")                     \
	X(FALLBACK_HELPER, TO_NAT, "PPTP control connection, which the kernel's helper has to see: kernel NAT")        \
	X(FALLBACK_PROTOCOL, TO_NAT, "neither TCP, UDP nor ICMP: kernel NAT")                                          \
	X(FALLBACK_ROUTES, TO_NAT, "more routes than there is room for, and perhaps one to here: kernel NAT")          \
	X(STRAY, STRAY_TO_NAT, "from a link to no socket of the host: dropped unless the kernel knows its connection") \
	X(NOT_CONFIGURED, PASSED, "settings are not loaded")                                                           \
	X(MALFORMED, DROPPED, "header cut short or lengths that contradict")                                           \
	X(BAD_CHECKSUM, DROPPED, "bad IP or ICMP checksum")                                                            \
	X(SOURCE_ROUTED, DROPPED, "IPv4 option that tells routers the way")                                            \
	X(SPOOFED_LAN, DROPPED, "LAN packet with a source outside the LAN prefixes")                                   \
	X(SPOOFED_DEVICE, DROPPED, "LAN packet with a source of another LAN device")                                   \
	X(SPOOFED_WAN, DROPPED, "link packet with a source inside the LAN prefixes or of the host")                    \
	X(BAD_SOURCE, DROPPED, "from a link to the LAN with a source that is known on one line alone, or nobody's")    \
	X(NOT_FORWARDED, DROPPED, "from a link to the LAN, of no flow")                                                \
	X(STRAY_SYN, DROPPED, "SYN from a link to a port nobody listens on")                                           \
	X(ICMP_OTHER, DROPPED, "ICMP from the LAN that is neither an echo request nor an error of a flow")             \
	X(TCP_FLAGS, DROPPED, "combination of TCP flags that no segment has")                                          \
	X(BAD_HANDSHAKE, DROPPED, "does not answer the SYN of its flow")                                               \
	X(FILTERED_IN, DROPPED, "remote address the mapping never talked to")                                          \
	X(BAD_RST, DROPPED, "RST outside the window")                                                                  \
	X(HAIRPIN_RST, DROPPED, "RST to the SYN of a LAN host by external address: a SYN may follow")                  \
	X(TTL_IN, DROPPED, "hop limit reached on the way in")                                                          \
	X(FRAGMENT_HELD, DROPPED, "fragment that waits for the first of its datagram")                                 \
	X(FRAGMENT_ORPHAN, DROPPED, "fragment whose first fragment was not seen, or whose flow is gone")               \
	X(FRAGMENT_OVERLAP, DROPPED, "overlapping fragments")                                                          \
	X(FOREIGN_ERROR, DROPPED, "ICMP error about no flow of ours")                                                  \
	X(BAD_QUOTE, DROPPED, "ICMP error about a TCP segment that is not in flight")                                  \
	X(UNKNOWN_RATE, DROPPED, "TCP segment of an unknown flow, beyond the host's rate of such")                     \
	X(CLASS_DROPPED, DROPPED, "no usable link of its class, whose rule says drop")                                 \
	X(RACE_OVER, DROPPED, "copy of a SYN that was answered before it left")                                        \
	X(SURVEYED, DROPPED, "answer to a probe of a destination that is used much")                                   \
	X(PROBE_LATE, DROPPED, "answer to a probe for a SYN that waits no more")                                       \
	X(PROBE_VAIN, DROPPED, "answer to a probe for a SYN that made room for others")                                \
	X(REWRITE_FAILED, DROPPED, "kernel helper refused the rewrite")                                                \
	X(NO_LINK, REFUSED, "no usable link")                                                                          \
	X(NO_CLASS_LINK, REFUSED, "no usable link of its class")                                                       \
	X(TTL_OUT, REFUSED, "hop limit reached: answered with time exceeded")                                          \
	X(LATE_ANSWER, REFUSED, "answer to a SYN that was answered over another link: reset")                          \
	X(RACE_LOST, REFUSED, "copy of the answer to a SYN, by a link whose copy of the SYN lost: reset")              \
	X(PROBE_ANSWERED, REFUSED, "answer to a probe: the SYN that waited for it is sent in its place")               \
	X(NO_FLOW_OUT, REFUSED, "TCP segment of an unknown flow: answered with a RST")                                 \
	X(REFUSED_QUOTA, REFUSED, "host over its quota")                                                               \
	X(REFUSED_CLASS, REFUSED, "host over its quota of the class")                                                  \
	X(REFUSED_FULL, REFUSED, "flow table full")                                                                    \
	X(REFUSED_MAPPINGS, REFUSED, "host over its share of external ports")                                          \
	X(REFUSED_DEVICE, REFUSED, "LAN device over its share of flows")                                               \
	X(REFUSED_HOSTS, REFUSED, "more LAN hosts than are counted: no newcomer opens flows")                          \
	X(REFUSED_RATE_HOST, REFUSED, "host over its rate of new flows for the kernel NAT")                            \
	X(REFUSED_RATE_ALL, REFUSED, "all hosts over the rate of new flows for the kernel NAT")                        \
	X(REFUSED_UNCONFIRMED, REFUSED, "no room for unanswered flows of a host that has none")                        \
	X(REFUSED_PORTS, REFUSED, "no external port free")                                                             \
	X(REFUSED_PROTOCOL, REFUSED, "neither TCP, UDP nor ICMP")                                                      \
	X(TOO_BIG_OUT, REFUSED, "longer than the link's MTU: answered with fragmentation needed")                      \
	X(TOO_BIG_IN, REFUSED, "longer than the LAN device's MTU: answered with fragmentation needed")                 \
	X(TOO_LONG_TO_FRAGMENT, REFUSED, "longer than the next device's MTU and cannot be cut: answered likewise")

enum ab_reason {
#define AB_REASON_ENUM(name, fate, words) AB_REASON_##name,
	AB_REASONS(AB_REASON_ENUM)
#undef AB_REASON_ENUM
		AB_REASON_COUNT,
};

#endif
