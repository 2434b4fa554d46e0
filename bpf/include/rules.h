/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Finds the class of a flow by rules, in the form to which user space compiles them.
 *
 * Rules are numbered from 1 in the order of the file, and the first one that matches takes the flow. A flow that matches none
 * belongs to rule 0 and class 0, the default. A class keeps its number as long as it has flows, even if its rule moves. The values
 * of each field are cut into pieces wherever a range of a rule begins or ends. Each piece has the set of rules that match its
 * values, as bit i for rule i. The rules that match a flow are the intersection of the sets of its fields, and the first of them is
 * the lowest bit. Bit 0 is in no set.
 */
#ifndef ANABRANCH_RULES_H
#define ANABRANCH_RULES_H

#include "anabranch.h"

#define AB_MAX_CLASSES 64

/* The index of the choice of a class and family. */
#define AB_CHOICE_PLACE(class, family) ((family)*AB_MAX_CLASSES + (class))

/* The fields that rules match: those of the first packet of a flow, as sent by its opener. */
struct ab_traits {
	union ab_addr src;
	union ab_addr dst;
	__be16 sport; /* ICMP: any value, no rule matches it */
	__be16 dport;
	__u8 proto;
	__u8 dscp; /* the upper six bits of the traffic class */
	__u16 zero;
	__u32 ifindex; /* the LAN device from which it came; 0: the host's own traffic */
};

/* A binary search among this many pieces takes AB_RULE_STEPS comparisons. */
#define AB_RULE_STEPS 9
#define AB_PIECES_MAX (1 << AB_RULE_STEPS)

/* An address as two numbers. */
struct ab_rule_addr {
	__u64 high;
	__u64 low;
};

/* The begin of each piece, in ascending order; the first is zero. Unused places begin at the greatest value and have the set of
 * the last piece in use. */
struct ab_rules_by_addr {
	struct ab_rule_addr start[AB_PIECES_MAX];
	__u64 set[AB_PIECES_MAX];
};

/* The same for ports, in host order. */
struct ab_rules_by_port {
	__u16 start[AB_PIECES_MAX];
	__u64 set[AB_PIECES_MAX];
};

/* A device that rules name. */
struct ab_rules_by_device {
	__u32 ifindex; /* 0: the place is free */
	__u32 zero;
	__u64 set; /* the rules that name it */
};

#define AB_RULE_DEVICES_MAX 16

/* All rules. Replaced as a whole when they change; schedules only change `active`. */
struct ab_rules {
	__u64 active;	  /* rules that are active by schedule; 0: there is no rule, and nothing else is read */
	__u64 own;	  /* in place of src.set, for the host's own traffic */
	__u64 any_device; /* rules that name no device */
	__u8 class[AB_MAX_CLASSES]; /* of each rule */
	struct ab_rules_by_device device[AB_RULE_DEVICES_MAX];
	__u64 proto[256];
	__u64 dscp[64];
	struct ab_rules_by_port sport;
	struct ab_rules_by_port dport;
	struct ab_rules_by_addr src;
	struct ab_rules_by_addr dst;
};

#endif
