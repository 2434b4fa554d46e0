/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The kernel's user-space headers define __always_inline as plain `inline`, which BPF programs cannot rely on. */
#ifndef ANABRANCH_POLICY_INLINE_H
#define ANABRANCH_POLICY_INLINE_H

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

/*
 * A global function of a BPF program: the verifier checks it once, independently of its callers. It must therefore check its
 * pointers for null.
 */
#ifdef __bpf__
#define AB_GLOBAL __attribute__((noinline))
#else
#define AB_GLOBAL static inline
#endif

#endif
