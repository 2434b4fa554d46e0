/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Since which version of the contract each pinned map has had its shape: its key, its value, and what they mean. To change one is
 * to raise AB_ABI_VERSION (of a trunk, AB_TRUNK_ABI_VERSION), to give the map that number here, and to say in former.h what it
 * looked like before. An upgrade uses on what has not changed since the version it finds.
 */
#ifndef ANABRANCH_VERSIONS_H
#define ANABRANCH_VERSIONS_H

/* X(name, version) */
#define AB_MAP_VERSIONS(X)                                                                                             \
	X(flows, 11)                                                                                                   \
	X(permissions, 6)                                                                                              \
	X(embryo_order, 5)                                                                                             \
	X(unordered, 11)                                                                                               \
	X(hosts, 5)                                                                                                    \
	X(sessions, 8)                                                                                                 \
	X(endpoints, 5)                                                                                                \
	X(losers, 10)                                                                                                  \
	X(fragments, 9)                                                                                                \
	X(fragment_order, 5)                                                                                           \
	X(early, 9)                                                                                                    \
	X(early_sources, 5)                                                                                            \
	X(fullness, 5)                                                                                                 \
	X(asked, 9)                                                                                                    \
	X(forwards, 12)                                                                                                \
	X(fallbacks, 5)                                                                                                \
	X(budgets, 5)                                                                                                  \
	X(budget_sums, 5)                                                                                              \
	X(rules, 8)                                                                                                    \
	X(classes, 8)                                                                                                  \
	X(class_names, 8)                                                                                              \
	X(settings, 12)                                                                                                \
	X(choice, 10)                                                                                                  \
	X(consistent, 6)                                                                                               \
	X(turn, 8)                                                                                                     \
	X(races, 10)                                                                                                   \
	X(openings, 10)                                                                                                \
	X(questions, 12)                                                                                               \
	X(held, 10)                                                                                                    \
	X(prefixes, 10)                                                                                                \
	X(silences, 12)                                                                                                \
	X(last_silence, 12)                                                                                            \
	X(teachers, 12)                                                                                                \
	X(links, 9)                                                                                                    \
	X(devices, 9)                                                                                                  \
	X(routes, 12)                                                                                                  \
	X(next_hops, 12)                                                                                               \
	X(traffic, 12)                                                                                                 \
	X(witnesses, 12)                                                                                               \
	X(reasons, 12)                                                                                                 \
	X(gauges, 6)                                                                                                   \
	X(table, 5)                                                                                                    \
	X(sweeping, 5)                                                                                                 \
	X(ending, 9)                                                                                                   \
	X(visits, 5)                                                                                                   \
	X(doomed, 5)                                                                                                   \
	X(ended, 5)                                                                                                    \
	X(upgrade, 7)                                                                                                  \
	X(own_macs, 12)                                                                                                \
	X(pairs, 12)

#define AB_TRUNK_MAP_VERSIONS(X)                                                                                       \
	X(spreading, 4)                                                                                                \
	X(sublinks, 4)                                                                                                 \
	X(bins, 3)                                                                                                     \
	X(volumes, 2)                                                                                                  \
	X(carried, 2)                                                                                                  \
	X(trunk_reasons, 2)

enum {
#define AB_SINCE(name, version) AB_SINCE_##name = version,
	AB_MAP_VERSIONS(AB_SINCE) AB_TRUNK_MAP_VERSIONS(AB_SINCE)
#undef AB_SINCE
};

#endif
